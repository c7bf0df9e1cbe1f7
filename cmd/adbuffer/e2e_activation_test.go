package main

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

	"adbuffer/internal/sspsim"
)

// manager holds listening sockets as systemd does, and passes them to what it
// starts, whose environment is env.
type manager struct {
	t      *testing.T
	files  []*os.File
	addrs  []string
	names  string // LISTEN_FDNAMES
	config string // file
	env    []string
}

func newManager(t *testing.T, config, names string, env ...string) *manager {
	t.Helper()
	return newManagerAt(t, "127.0.0.1", config, names, env...)
}

func newManagerAt(t *testing.T, host, config, names string, env ...string) *manager {
	t.Helper()
	m := &manager{t: t, names: names, config: filepath.Join(t.TempDir(), "adbuffer.yaml"), env: env}
	if err := os.WriteFile(m.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for range strings.Count(names, ":") + 1 {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // the file stays
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() }) //nolint:errcheck // the test is over
		m.files, m.addrs = append(m.files, f), append(m.addrs, l.Addr().String())
	}
	return m
}

// command is the binary as it is started; a shell writes its own process id into
// the environment before it becomes the binary.
func (m *manager) command() *exec.Cmd {
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, binary(m.t), "serve", "--config", m.config)
	cmd.Env = slices.Concat(os.Environ(), patient, []string{
		// What the sockets stand above: nobody could listen there.
		"ADBUFFER_SERVER_LISTEN=192.0.2.1:1", "LISTEN_FDNAMES=" + m.names, "LISTEN_FDS=" + string(rune('0'+len(m.files))),
	}, m.env)
	cmd.ExtraFiles = m.files
	return cmd
}

func (m *manager) start() *adbuffer {
	m.t.Helper()
	ab := launchCommand(m.t, m.command(), (*adbuffer).findListeners)
	ab.awaitReady()
	return ab
}

func TestRestartsLoseNothingWhereTheSocketStaysWithSystemd(t *testing.T) {
	t.Parallel()
	s := sspWith(t, sspsim.Behaviour{Latency: sspsim.Lognormal(2e6, 20e6)})
	m := newManager(t, single(s.URL()), "admin:traffic", "ADBUFFER_SERVER_DRAIN_DELAY=2s")
	now := m.start()
	if now.admin != m.addrs[0] || now.traffic != m.addrs[1] {
		t.Fatalf("traffic at %s and admin at %s; passed were admin and traffic at %v", now.traffic, now.admin, m.addrs)
	}
	l := startLoad(now)
	for range 3 {
		now.signal(syscall.SIGTERM)
		now.wantExit(0)
		now = m.start() // only now: meanwhile clients wait in the socket's queue
	}
	l.wantNothingLost(t)
	now.signal(syscall.SIGTERM)
	now.wantExit(0)
}

func TestSystemdSocketActivateStartsTheServiceAtTheFirstConnection(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	if err := os.WriteFile(file, []byte(single(s.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ad.sock")
	args := []string{"--listen=" + path, "--fdname=traffic"}
	for _, v := range patient {
		args = append(args, "--setenv="+v)
	}
	cmd := exec.Command("systemd-socket-activate", append(args, binary(t), "serve", "--config", file)...)
	var first net.Conn
	ab := launchCommand(t, cmd, func(ab *adbuffer) bool {
		if first == nil {
			first, _ = net.Dial("unix", path) // before it, nothing but the socket is there
		}
		return ab.findListeners()
	})
	defer first.Close() //nolint:errcheck // nothing is left to be done about it
	ab.awaitReady()
	if ab.traffic != path {
		t.Errorf("traffic at %s, want %s", ab.traffic, path)
	}
	first.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // a closed socket fails the read
	c := &client{t: t, c: first, r: bufio.NewReader(first)}
	c.get("/fillbuffer").wantFill("openx")
	c.close()
	ab.get("/fillbuffer").wantFill("openx")
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket is systemd's, yet it was removed: %v", err)
	}
}

func TestSocketsOfSystemdThatDoNotFitAreFaults(t *testing.T) {
	t.Parallel()
	for names, says := range map[string]string{
		"admin": `no socket is named "traffic", for server.listen; set FileDescriptorName=traffic`, "traffic:traffic": `two sockets are named "traffic"`,
		"traffic:web": `the socket "web" is named neither`, "a:b:c": "3 sockets were passed (a, b, c)",
	} {
		m := newManager(t, single("http://127.0.0.1:1/"), names)
		out, err := m.command().CombinedOutput()
		if err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v\n%s\nwant %q", names, err, out, says)
		}
	}
}

// The configured address does not count then, for who may see what neither.
func TestAnAdminSocketOfSystemdBeyondLoopbackIsGuarded(t *testing.T) {
	t.Parallel()
	m := newManagerAt(t, "0.0.0.0", single("http://127.0.0.1:1/"), "traffic:admin", "ADBUFFER_ADMIN_LISTEN=127.0.0.1:0")
	ab := m.start()
	if status, _ := ab.ask("/pools"); status != 403 {
		t.Errorf("/pools answers %d without a token", status)
	}
	if !strings.Contains(ab.log.String(), "the admin socket that was passed is reachable from other machines") {
		t.Error("there is no warning")
	}
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
}

func TestTheServiceManagerIsToldOfEachState(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	name := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing is left to be done about it
	want := func(states ...string) {
		t.Helper()
		l.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // a closed socket fails the read
		b := make([]byte, 4096)
		n, err := l.Read(b)
		for _, state := range states {
			if err != nil || !strings.Contains("\n"+string(b[:n]), "\n"+state) {
				t.Errorf("told %q, %v; want %s", b[:n], err, state)
			}
		}
	}
	ab := start(t, single(s.URL()), "NOTIFY_SOCKET="+name)
	want("READY=1")
	ab.signal(syscall.SIGHUP)
	want("RELOADING=1", "MONOTONIC_USEC=")
	want("READY=1")
	ab.signal(syscall.SIGTERM)
	want("STOPPING=1")
	ab.wantExit(0)
}
