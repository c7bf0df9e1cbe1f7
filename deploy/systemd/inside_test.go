//go:build linux

package systemd

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"
)

// insideDone is the last line of the output if every check passed.
const insideDone = "the units work"

// inside runs in the container. It returns the exit status.
func inside() (code int) {
	m := &machine{}
	defer func() {
		if p := recover(); p != nil {
			fmt.Println(p)
			fmt.Println(m.try("journalctl", "--no-pager", "-o", "cat", "-u", "adbuffer.service"))
			code = 1
		}
	}()
	secrets := m.installAsTheREADMESays()
	m.startsWarmAndConfined()
	m.reloads(true)
	fmt.Print(m.run("sh", "-euxc", secrets))
	m.hidesItsSecrets()
	m.reloads(false)
	m.restartsWithoutARefusal()
	m.comesBackWhenKilled()
	m.stops()
	fmt.Println(insideDone)
	return 0
}

// machine is the container. Its methods run in it, and panic with an error.
type machine struct{}

// try runs a command that may fail.
func (m *machine) try(args ...string) string {
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		out = fmt.Appendf(out, "%v\n", err)
	}
	return string(out)
}

// run runs a command that must succeed.
func (m *machine) run(args ...string) string {
	start := time.Now()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	fmt.Printf("%s (%v)\n", strings.Join(args, " "), time.Since(start).Round(time.Millisecond))
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	return string(out)
}

// property returns a property of the service, as systemctl show prints it.
func (m *machine) property(name string) string {
	return strings.TrimSpace(m.try("systemctl", "show", "--value", "--property="+name, "adbuffer.service"))
}

// installAsTheREADMESays runs the README's steps as they are written. A simulated SSP listens where
// config/minimal.yaml expects an SSP. The function returns the steps for secrets.
func (m *machine) installAsTheREADMESays() (secrets string) {
	readme, err := os.ReadFile("deploy/systemd/README.md")
	must(err)
	steps := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(steps) != 2 {
		panic(fmt.Sprintf("the README has %d blocks of commands, want those that install and those for secrets", len(steps)))
	}
	must(os.MkdirAll("/usr/local/bin", 0o755)) // every machine has this folder
	must(os.WriteFile("/etc/systemd/system/sim.service", []byte("[Service]\nExecStart=/usr/local/bin/adbuffer sim\n"), 0o644))
	script := strings.Replace(string(steps[0][1]), "make build\n", "", 1)
	script = strings.Replace(script, "systemctl enable", "systemctl start sim.service\nsystemctl enable", 1)
	// The README advises this for units with sockets.
	script = strings.Replace(script, "adbuffer check", "sed -i 's/^server:/server:\\n  drain: {delay: 0s}/' /etc/adbuffer/adbuffer.yaml\nadbuffer check", 1)
	fmt.Print(m.run("sh", "-euxc", script))
	return string(steps[1][1])
}

func (m *machine) startsWarmAndConfined() {
	if state, text := m.property("ActiveState"), m.property("StatusText"); state != "active" || text != "ready" {
		panic(fmt.Sprintf("%s, %q", state, text))
	}
	m.ad()
	status, err := os.ReadFile("/proc/" + m.property("MainPID") + "/status")
	must(err)
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !bytes.Contains(status, []byte(want)) {
			panic(fmt.Sprintf("%q is missing:\n%s", want, status))
		}
	}
	if bytes.Contains(status, []byte("Uid:\t0\t")) {
		panic("it runs as root")
	}
	metrics := m.get("http://127.0.0.1:9090/metrics")
	if !strings.Contains(metrics, "\nprocess_start_time_seconds ") {
		panic("no process_start_time_seconds")
	}
}

// hidesItsSecrets checks the source of the token.
func (m *machine) hidesItsSecrets() {
	const token = "/run/credentials/adbuffer.service/admin-token"
	if config := m.get("http://127.0.0.1:9090/config"); !strings.Contains(config, token) {
		panic("the token is no credential:\n" + config)
	}
	if info, err := os.Stat("/etc/adbuffer/secrets/admin-token"); err != nil || info.Mode().Perm() != 0o600 {
		panic(fmt.Sprint("the token's file: ", info, err))
	}
}

// reloads checks that a reload applies a valid file and refuses a file with errors. systemctl reports the errors if
// systemctlFails.
func (m *machine) reloads(systemctlFails bool) {
	const file = "/etc/adbuffer/adbuffer.yaml"
	good, err := os.ReadFile(file)
	must(err)
	must(os.WriteFile(file, bytes.Replace(good, []byte("max_conns: 64"), []byte("max_conns: 65"), 1), 0o644))
	m.run("systemctl", "reload", "adbuffer")
	m.eventually("the file is in force", func() bool {
		return strings.Contains(m.get("http://127.0.0.1:9090/config"), "max_conns: 65")
	})
	fault := fmt.Sprintf("rutes_%v", systemctlFails)
	must(os.WriteFile(file, fmt.Appendf(bytes.Clone(good), "%s: []\n", fault), 0o644))
	if out := m.try("systemctl", "reload", "adbuffer"); strings.Contains(out, "failed") != systemctlFails {
		panic("reloading a file with faults: " + out)
	}
	m.eventually("the fault is in the journal", func() bool {
		return strings.Contains(m.try("journalctl", "--no-pager", "-o", "cat", "-u", "adbuffer.service"), fault)
	})
	m.eventually("the metric tells of the fault", func() bool {
		return strings.Contains(m.get("http://127.0.0.1:9090/metrics"), "\nadbuffer_config_last_reload_successful 0")
	})
	m.ad()
	must(os.WriteFile(file, good, 0o644))
	m.run("systemctl", "reload", "adbuffer")
	m.eventually("the good file is in force again", func() bool {
		return strings.Contains(m.get("http://127.0.0.1:9090/metrics"), "\nadbuffer_config_last_reload_successful 1")
	})
	m.ad()
}

// restartsWithoutARefusal restarts the service while requests arrive, each on its own connection.
func (m *machine) restartsWithoutARefusal() {
	pid := m.property("MainPID")
	stop := make(chan struct{})
	var requests sync.WaitGroup
	var mu sync.Mutex
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
					m.ad()
				}()
			}
		})
	}
	for range 3 {
		m.run("systemctl", "restart", "adbuffer")
	}
	close(stop)
	requests.Wait()
	if len(failures) > 0 {
		panic(fmt.Sprintf("%d of %d requests failed while it restarted: %v", len(failures), n, failures[0]))
	}
	fmt.Printf("%d requests while it restarted, none failed\n", n)
	if m.property("MainPID") == pid {
		panic("it did not restart")
	}
}

func (m *machine) comesBackWhenKilled() {
	m.run("kill", "-KILL", m.property("MainPID"))
	m.eventually("it is back", func() bool { return m.property("NRestarts") == "1" && m.property("StatusText") == "ready" })
	m.ad()
}

func (m *machine) stops() {
	m.run("systemctl", "stop", "adbuffer.socket", "adbuffer-admin.socket", "adbuffer.service")
	if result := m.property("Result"); result != "success" {
		panic("it ended with " + result)
	}
	if out := m.try("adbuffer", "health", "--config", "/etc/adbuffer/adbuffer.yaml"); !strings.Contains(out, "not ready") {
		panic("healthy after its end: " + out)
	}
}

// ad sends one request on a new connection.
func (m *machine) ad() {
	if body := m.get("http://127.0.0.1:8080/fillbuffer?pub=1"); !strings.Contains(body, "seatbid") {
		panic("no ad: " + body)
	}
}

func (m *machine) get(url string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Get(url)
	must(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(err)
	if res.StatusCode != http.StatusOK {
		panic(fmt.Sprintf("%s: %s: %s", url, res.Status, body))
	}
	return string(body)
}

func (m *machine) eventually(what string, ok func() bool) {
	for end := time.Now().Add(patience / 2); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			panic("not so: " + what)
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
