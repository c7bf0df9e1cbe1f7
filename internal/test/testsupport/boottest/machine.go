package boottest

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Machine is the container. Its methods run in it, and panic with an error.
type Machine struct{}

// Try runs a command of the shell that may fail.
func (m *Machine) Try(command string) string {
	out, err := exec.Command("sh", "-euc", command).CombinedOutput()
	if err != nil {
		out = fmt.Appendf(out, "%v\n", err)
	}
	return string(out)
}

// Run runs a command of the shell that must succeed.
func (m *Machine) Run(command string) string {
	start := time.Now()
	out, err := exec.Command("sh", "-euc", command).CombinedOutput()
	fmt.Printf("%s (%v)\n", command, time.Since(start).Round(time.Millisecond))
	if err != nil {
		panic(fmt.Sprintf("%s: %v: %s", command, err, out))
	}
	return string(out)
}

// Property returns a property of the service, as systemctl show prints it.
func (m *Machine) Property(name string) string {
	return strings.TrimSpace(m.Try("systemctl show --value --property=" + name + " adbuffer.service"))
}

// Ad sends one request on a new connection.
func (m *Machine) Ad() { Must(ad()) }

func ad() error {
	body, err := get("http://127.0.0.1:8080/fillbuffer?pub=1")
	if err == nil && !strings.Contains(body, "seatbid") {
		err = fmt.Errorf("no ad: %s", body)
	}
	return err
}

// Get returns the body of a response with status 200.
func (m *Machine) Get(url string) string {
	body, err := get(url)
	Must(err)
	return body
}

func get(url string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, res.Status, body)
	}
	return string(body), err
}

// UnderRequests calls change while requests arrive, each on its own connection. None may fail. pause is
// the time between two requests of the same goroutine.
func (m *Machine) UnderRequests(pause time.Duration, change func()) {
	var stopped atomic.Bool
	var n, failed atomic.Int64
	var requests sync.WaitGroup
	for range 4 {
		requests.Go(func() {
			for ; !stopped.Load(); time.Sleep(pause) {
				n.Add(1)
				if err := ad(); err != nil {
					failed.Add(1)
					fmt.Println(err)
				}
			}
		})
	}
	change()
	stopped.Store(true)
	requests.Wait()
	if n.Load() < 10 || failed.Load() > 0 {
		panic(fmt.Sprintf("%d of %d requests failed", failed.Load(), n.Load()))
	}
	fmt.Printf("%d requests, none failed\n", n.Load())
}

// Must panics with an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
