//go:build linux

package systemd

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/test/testsupport/boottest"
)

// inside runs in the container.
func inside(running *boottest.Machine) {
	m := machine{running}
	secrets := m.installAsTheREADMESays()
	m.startsWarmAndConfined()
	m.reloads(true)
	fmt.Print(m.Run("set -x\n" + secrets))
	m.hidesItsSecrets()
	m.reloads(false)
	m.restartsWithoutARefusal()
	m.comesBackWhenKilled()
	m.stops()
}

// machine is the container, with the steps of the test.
type machine struct{ *boottest.Machine }

// installAsTheREADMESays runs the README's steps as they are written. A simulated SSP listens where
// config/minimal.yaml expects an SSP. The function returns the steps for secrets.
func (m *machine) installAsTheREADMESays() (secrets string) {
	readme, err := os.ReadFile("deploy/systemd/README.md")
	boottest.Must(err)
	steps := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(steps) != 2 {
		panic(fmt.Sprintf("the README has %d blocks of commands, want those that install and those for secrets", len(steps)))
	}
	boottest.Must(os.MkdirAll("/usr/local/bin", 0o755)) // every machine has this folder
	boottest.Must(os.WriteFile("/etc/systemd/system/sim.service", []byte("[Service]\nExecStart=/usr/local/bin/adbuffer sim\n"), 0o644))
	script := strings.Replace(string(steps[0][1]), "make build\n", "", 1)
	script = strings.Replace(script, "systemctl enable", "systemctl start sim.service\nsystemctl enable", 1)
	// The README advises this for units with sockets.
	script = strings.Replace(script, "adbuffer check", "sed -i 's/^server:/server:\\n  drain: {delay: 0s}/' /etc/adbuffer/adbuffer.yaml\nadbuffer check", 1)
	fmt.Print(m.Run("set -x\n" + script))
	return string(steps[1][1])
}

func (m *machine) startsWarmAndConfined() {
	if state, text := m.Property("ActiveState"), m.Property("StatusText"); state != "active" || text != "ready" {
		panic(fmt.Sprintf("%s, %q", state, text))
	}
	m.Ad()
	status, err := os.ReadFile("/proc/" + m.Property("MainPID") + "/status")
	boottest.Must(err)
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !bytes.Contains(status, []byte(want)) {
			panic(fmt.Sprintf("%q is missing:\n%s", want, status))
		}
	}
	if bytes.Contains(status, []byte("Uid:\t0\t")) {
		panic("it runs as root")
	}
	metrics := m.Get("http://127.0.0.1:9090/metrics")
	if !strings.Contains(metrics, "\nprocess_start_time_seconds ") {
		panic("no process_start_time_seconds")
	}
}

// hidesItsSecrets checks the source of the token.
func (m *machine) hidesItsSecrets() {
	const token = "/run/credentials/adbuffer.service/admin-token"
	if config := m.Get("http://127.0.0.1:9090/config"); !strings.Contains(config, token) {
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
	boottest.Must(err)
	boottest.Must(os.WriteFile(file, bytes.Replace(good, []byte("max_conns: 64"), []byte("max_conns: 65"), 1), 0o644))
	m.Run("systemctl reload adbuffer")
	m.eventually("the file is in force", func() bool {
		return strings.Contains(m.Get("http://127.0.0.1:9090/config"), "max_conns: 65")
	})
	fault := fmt.Sprintf("rutes_%v", systemctlFails)
	boottest.Must(os.WriteFile(file, fmt.Appendf(bytes.Clone(good), "%s: []\n", fault), 0o644))
	if out := m.Try("systemctl reload adbuffer"); strings.Contains(out, "failed") != systemctlFails {
		panic("reloading a file with faults: " + out)
	}
	m.eventually("the fault is in the journal", func() bool {
		return strings.Contains(m.Try("journalctl --no-pager -o cat -u adbuffer.service"), fault)
	})
	m.eventually("the metric tells of the fault", func() bool {
		return strings.Contains(m.Get("http://127.0.0.1:9090/metrics"), "\nadbuffer_config_last_reload_successful 0")
	})
	m.Ad()
	boottest.Must(os.WriteFile(file, good, 0o644))
	m.Run("systemctl reload adbuffer")
	m.eventually("the good file is in force again", func() bool {
		return strings.Contains(m.Get("http://127.0.0.1:9090/metrics"), "\nadbuffer_config_last_reload_successful 1")
	})
	m.Ad()
}

// restartsWithoutARefusal restarts the service while requests arrive.
func (m *machine) restartsWithoutARefusal() {
	pid := m.Property("MainPID")
	m.UnderRequests(0, func() {
		for range 3 {
			m.Run("systemctl restart adbuffer")
		}
	})
	if m.Property("MainPID") == pid {
		panic("it did not restart")
	}
}

func (m *machine) comesBackWhenKilled() {
	m.Run("kill -KILL " + m.Property("MainPID"))
	m.eventually("it is back", func() bool { return m.Property("NRestarts") == "1" && m.Property("StatusText") == "ready" })
	m.Ad()
}

func (m *machine) stops() {
	m.Run("systemctl stop adbuffer.socket adbuffer-admin.socket adbuffer.service")
	if result := m.Property("Result"); result != "success" {
		panic("it ended with " + result)
	}
	if out := m.Try("adbuffer health --config /etc/adbuffer/adbuffer.yaml"); !strings.Contains(out, "not ready") {
		panic("healthy after its end: " + out)
	}
}

func (m *machine) eventually(what string, ok func() bool) {
	for end := time.Now().Add(testsupport.Patience / 2); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			panic("not so: " + what)
		}
	}
}
