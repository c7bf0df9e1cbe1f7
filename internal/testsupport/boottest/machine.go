package boottest

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
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
func (m *Machine) Ad() {
	if body := m.Get("http://127.0.0.1:8080/fillbuffer?pub=1"); !strings.Contains(body, "seatbid") {
		panic("no ad: " + body)
	}
}

// Get returns the body of a response with status 200.
func (m *Machine) Get(url string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	res, err := client.Get(url)
	Must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	Must(err)
	if res.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("%s: %s: %s", url, res.Status, body))
	}
	return string(body)
}

// UnderRequests calls change while requests arrive, each on its own connection. None may fail. pause is
// the time between two requests of the same goroutine.
func (m *Machine) UnderRequests(pause time.Duration, change func()) {
	stop := make(chan struct{})
	var requests sync.WaitGroup
	var mu sync.Mutex // guards the variables below
	var failures []any
	n := 0
	for range 4 {
		requests.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				func() {
					defer func() {
						p := recover()
						mu.Lock()
						defer mu.Unlock()
						n++
						if p != nil {
							failures = append(failures, p)
						}
					}()
					m.Ad()
				}()
				time.Sleep(pause)
			}
		})
	}
	change()
	close(stop)
	requests.Wait()
	if n < 10 || len(failures) > 0 {
		panic(fmt.Sprintf("%d of %d requests failed: %v", len(failures), n, failures))
	}
	fmt.Printf("%d requests, none failed\n", n)
}

// Must panics with an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
