//go:build linux

package systemd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// patience bounds every wait; it passes only when something is broken.
const patience = testsupport.Patience

// service is adbuffer as systemd would run it.
type service struct {
	t       *testing.T
	cmd     *exec.Cmd
	dir     string // readable for the service
	log     bytes.Buffer
	notices *net.UnixConn // what it says to the service manager
	ended   chan struct{}
}

// own gives a file to the service's user, if the tests run as root.
func own(t *testing.T, file string) {
	t.Helper()
	if os.Geteuid() == 0 {
		if err := os.Chown(file, serviceID, serviceID); err != nil {
			t.Fatal(err)
		}
	}
}

// prepare makes what systemd prepares for the unit: RuntimeDirectory, CredentialsDirectory and
// NOTIFY_SOCKET. It also writes the configuration.
func prepare(t *testing.T, config string) *service {
	t.Helper()
	parent, err := buildDir()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, ended: make(chan struct{})}
	if s.dir, err = os.MkdirTemp(parent, "run-"); err != nil {
		t.Fatal(err)
	}
	own(t, s.dir)
	for name, text := range map[string]string{"adbuffer.yaml": config, "admin-token": "0123456789abcdef\n"} {
		if err := os.WriteFile(s.dir+"/"+name, []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
		own(t, s.dir+"/"+name)
	}
	if s.notices, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.dir + "/notify", Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.notices.Close() })
	own(t, s.dir+"/notify")
	return s
}

// command returns a command of the unit, under its limits.
func (s *service) command(args ...string) *exec.Cmd {
	s.t.Helper()
	cmd := confined(s.t, append([]string{binary(s.t)}, args...)...)
	cmd.Env = append(cmd.Env, "ADBUFFER_CONFIG="+s.dir+"/adbuffer.yaml", "ADBUFFER_ADMIN_TOKEN_FILE="+s.dir+"/admin-token", "NOTIFY_SOCKET="+s.dir+"/notify")
	return cmd
}

// start runs the unit's ExecStart, with the sockets of its socket units.
func (s *service) start(sockets ...*os.File) {
	s.t.Helper()
	s.cmd = s.command("serve")
	if len(sockets) > 0 {
		s.cmd.ExtraFiles = sockets
		s.cmd.Env = append(s.cmd.Env, fmt.Sprintf("LISTEN_FDS=%d", len(sockets)), "LISTEN_FDNAMES=traffic:admin")
	}
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		s.cmd.Wait() //nolint:errcheck // ProcessState shows the error
		close(s.ended)
	}()
	s.t.Cleanup(func() {
		s.cmd.Process.Kill() //nolint:errcheck // it has ended, unless the test failed
		<-s.ended
		if s.t.Failed() {
			s.t.Logf("its log:\n%s", &s.log)
		}
	})
	s.await("READY=1")
}

// await reads notices until a notice has this line.
func (s *service) await(line string) {
	s.t.Helper()
	buffer := make([]byte, 4096)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		ended := false
		select {
		case <-s.ended:
			ended = true // its last notices may still be unread
		default:
		}
		if err := s.notices.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			s.t.Fatal(err)
		}
		n, err := s.notices.Read(buffer)
		if slices.Contains(strings.Split(string(buffer[:n]), "\n"), line) {
			return
		}
		if err != nil && ended {
			s.t.Fatalf("it ended before it said %s: %v", line, s.cmd.ProcessState)
		}
	}
	s.t.Fatalf("it did not say %s within %v", line, patience)
}

// stop ends the service as systemctl stop does.
func (s *service) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	s.await("STOPPING=1")
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("exit status %d (%v)", code, s.cmd.ProcessState)
	}
}

// get sends a GET to a listener: a TCP address or a Unix socket.
func (s *service) get(network, addr, path string) string {
	s.t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}}
	res, err := client.Get("http://127.0.0.1" + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v: %s", path, res.Status, err, body)
	}
	return string(body)
}

// simulated starts an SSP with HTTP/1 and an SSP with HTTP/2 over TLS. It returns the part of a
// configuration that names them.
func simulated(t *testing.T) string {
	t.Helper()
	var urls []string
	var ca []byte
	for _, protocol := range []sspsim.Protocol{sspsim.HTTP1, sspsim.TLSHTTP2} {
		ssp, err := sspsim.Start(sspsim.Options{Protocol: protocol})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ssp.Close() })
		urls = append(urls, ssp.URL())
		ca = ssp.CA().PEM()
	}
	parent, err := buildDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(parent, "ca-"+t.Name()+".pem")
	if err := os.WriteFile(file, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`
deadline: {default: 20s, max: 30s}
ssps:
  - {name: plain, endpoints: [%q], timeouts: {connect: 10s}}
  - {name: encrypted, endpoints: [%q], timeouts: {connect: 10s, tls_handshake: 10s}, tls: {ca_file: %q}}
routes: [{name: default, match: {path: /fillbuffer}, ssps: [plain, encrypted], client_choice: true}]
`, urls[0], urls[1], file)
}

// The limits of the unit allow all that adbuffer needs. A system call that SystemCallFilter= does
// not allow would end adbuffer here.
func TestTheServiceWorksWithTheSocketsAndLimitsOfTheUnits(t *testing.T) {
	var sockets []*os.File
	var addrs []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := l.(*net.TCPListener).File()
		l.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		sockets, addrs = append(sockets, f), append(addrs, l.Addr().String())
	}
	s := prepare(t, `server: {listen: "127.0.0.1:1", drain: {delay: 0s}}`+"\n"+`admin: {listen: "127.0.0.1:2"}`+simulated(t))
	s.start(sockets...)

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"}
	if os.Geteuid() == 0 {
		want = append(want, "CapBnd:\t0000000000000000", "Uid:\t65532\t")
	}
	for _, w := range want {
		if !bytes.Contains(status, []byte(w)) {
			t.Errorf("it is not confined, %q is missing:\n%s", w, status)
		}
	}
	for _, ssp := range []string{"plain", "encrypted"} {
		if body := s.get("tcp", addrs[0], "/fillbuffer/"+ssp); !strings.Contains(body, "seatbid") {
			t.Errorf("%s: %s", ssp, body)
		}
	}
	metrics := s.get("tcp", addrs[1], "/metrics")
	for _, name := range []string{"process_start_time_seconds", "process_open_fds", "process_resident_memory_bytes", "go_goroutines"} {
		if !strings.Contains(metrics, "\n"+name+" ") {
			t.Errorf("the metric %s is missing", name)
		}
	}
	// systemctl reload.
	if out, err := s.command("check", "--quiet").CombinedOutput(); err != nil {
		t.Errorf("adbuffer check: %v\n%s", err, out)
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.await("RELOADING=1")
	s.await("READY=1")
	if body := s.get("tcp", addrs[0], "/fillbuffer/encrypted"); !strings.Contains(body, "seatbid") {
		t.Errorf("after a reload: %s", body)
	}
	if out, err := s.command("health", "--url", "http://"+addrs[1]+"/readyz").CombinedOutput(); err != nil {
		t.Errorf("adbuffer health: %v\n%s", err, out)
	}
	s.stop()
}

func TestTheServiceOpensItsOwnListenersWithinTheLimitsOfTheUnit(t *testing.T) {
	s := prepare(t, "")
	traffic, admin := s.dir+"/traffic.sock", testsupport.FreeAddr(t)
	config := fmt.Sprintf("server: {listen: %q, drain: {delay: 0s}}\nadmin: {listen: %q}\n", "unix:"+traffic, admin) + simulated(t)
	if err := os.WriteFile(s.dir+"/adbuffer.yaml", []byte(config), 0o400); err != nil {
		t.Fatal(err)
	}
	s.start()
	if body := s.get("unix", traffic, "/fillbuffer/encrypted"); !strings.Contains(body, "seatbid") {
		t.Errorf("%s", body)
	}
	s.get("tcp", admin, "/readyz")
	s.stop()
}

func TestTheUnitForbidsSystemCalls(t *testing.T) {
	cmd := confined(t)
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || status.Signal() != syscall.SIGSYS {
		t.Errorf("%v, want the end by SIGSYS: %s", err, out)
	}
}
