package drain

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// manager holds listening sockets as systemd does. It passes them to the processes that it starts
// with the environment env.
type manager struct {
	t      *testing.T
	files  []*os.File
	addrs  []string
	names  string // value of LISTEN_FDNAMES
	config string // path of the configuration file
	env    []string
}

func newManager(t *testing.T, host, config, names string, env ...string) *manager {
	t.Helper()
	m := &manager{t: t, names: names, config: e2e.WriteConfig(t, config), env: env}
	for range strings.Count(names, ":") + 1 {
		l, err := net.Listen("tcp", host+":0")
		testsupport.NoError(t, err)
		defer l.Close()
		f, err := l.(*net.TCPListener).File()
		testsupport.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		m.files, m.addrs = append(m.files, f), append(m.addrs, l.Addr().String())
	}
	return m
}

// command starts the binary. A shell writes its own process id into the environment before it
// becomes the binary.
func (m *manager) command() *exec.Cmd {
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, e2e.Binary(m.t), "serve", "--config", m.config)
	cmd.Env = slices.Concat(os.Environ(), e2e.Patient(), []string{
		// The inherited sockets take precedence over this address, which no process could bind.
		"ADBUFFER_SERVER_LISTEN=192.0.2.1:1", "LISTEN_FDNAMES=" + m.names, "LISTEN_FDS=" + string(rune('0'+len(m.files))),
	}, m.env)
	cmd.ExtraFiles = m.files
	return cmd
}

func (m *manager) start() *e2e.Process {
	m.t.Helper()
	ab := e2e.LaunchCommand(m.t, m.command(), (*e2e.Process).FindListeners)
	ab.AwaitReady()
	return ab
}

func TestSystemdSocketActivateStartsTheServiceAtTheFirstConnection(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	file := e2e.WriteConfig(t, e2e.Single(s.URL()))
	path := filepath.Join(t.TempDir(), "ad.sock")
	args := []string{"--listen=" + path, "--fdname=traffic"}
	for _, v := range e2e.Patient() {
		args = append(args, "--setenv="+v)
	}
	cmd := exec.Command(testsupport.Needs(t, "systemd", "systemd-socket-activate"), append(args, e2e.Binary(t), "serve", "--config", file)...)
	var first net.Conn
	ab := e2e.LaunchCommand(t, cmd, func(ab *e2e.Process) bool {
		if first == nil {
			first, _ = net.Dial("unix", path) // before the process runs, only the socket exists
		}
		return ab.FindListeners()
	})
	defer first.Close()
	ab.AwaitReady()
	testsupport.Equal(t, ab.TrafficAddr, path, "traffic at %s")
	first.SetDeadline(time.Now().Add(testsupport.Patience))
	c := &e2e.Client{T: t, Conn: first, Reader: bufio.NewReader(first)}
	c.Get("/fillbuffer").WantFill("openx")
	c.Close()
	ab.Get("/fillbuffer").WantFill("openx")
	ab.Terminate(0)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket is systemd's, but it was removed: %v", err)
	}
}

// A socket from systemd replaces the configured admin address, also for the check whether access
// needs a token.
func TestAnAdminSocketOfSystemdBeyondLoopbackIsGuarded(t *testing.T) {
	t.Parallel()
	m := newManager(t, "0.0.0.0", e2e.Single("http://127.0.0.1:1/"), "traffic:admin", "ADBUFFER_ADMIN_LISTEN=127.0.0.1:0")
	ab := m.start()
	if status, _ := ab.AskAdmin("/pools"); status != 403 {
		t.Errorf("/pools responds with %d without a token", status)
	}
	testsupport.Eventually(t, "there is a warning", func() bool {
		return strings.Contains(ab.Log.String(), "the admin socket from systemd is reachable from other machines")
	})
	ab.Terminate(0)
}

func TestSystemdIsNotifiedOfEachState(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	name := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	testsupport.NoError(t, err)
	defer l.Close()
	want := func(states ...string) {
		t.Helper()
		l.SetReadDeadline(time.Now().Add(testsupport.Patience))
		b := make([]byte, 4096)
		n, err := l.Read(b)
		for _, state := range states {
			if err != nil || !strings.Contains("\n"+string(b[:n]), "\n"+state) {
				t.Errorf("received %q, %v; want %s", b[:n], err, state)
			}
		}
	}
	ab := e2e.Start(t, e2e.Single(s.URL()), "NOTIFY_SOCKET="+name)
	want("READY=1")
	ab.Signal(syscall.SIGHUP)
	want("RELOADING=1", "MONOTONIC_USEC=")
	want("READY=1")
	ab.Signal(syscall.SIGTERM)
	want("STOPPING=1")
	ab.WantExit(0)
}
