package rig

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
	"adbuffer/loadtest/internal/load"
)

func TestMain(m *testing.M) {
	ChildMain()
	os.Exit(m.Run())
}

func newRig(t *testing.T) *Rig {
	t.Helper()
	r, err := New()
	testsupport.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func plan(addr string) load.Plan {
	return load.Plan{Addr: addr, Protocol: load.KeepAlive, Connections: 2, Requests: 20,
		Phases: []load.Phase{{Name: "load", Duration: time.Minute}}, Templates: []load.Template{{Name: "get", Method: "GET", Path: "/bid?cb={n}"}}}
}

func TestGeneratorAndSSPInProcessesOfTheirOwnAgreeOnTheCounts(t *testing.T) {
	r := newRig(t)
	s, err := r.StartSSP(SSPOptions{Name: "one"})
	testsupport.NoError(t, err)
	result, err := r.Generate(t.Context(), plan(s.Addr), "", nil)
	testsupport.NoError(t, err)
	c, err := s.Counters()
	testsupport.NoError(t, err)
	if result.Whole.Answered != 20 || c.Requests != 20 || c.Connections != 2 {
		t.Errorf("generator: %d answers; SSP: %d requests on %d connections", result.Whole.Answered, c.Requests, c.Connections)
	}
	testsupport.NoError(t, s.Patch([]byte(`{"faults":{"status":{"every":2}}}`)))
	if result, err = r.Generate(t.Context(), plan(s.Addr), "", nil); err != nil || result.Whole.Errors["status 503"] != 10 {
		t.Errorf("after the change: %v, errors %v", err, result.Whole.Errors)
	}
	if err := s.Patch([]byte(`{"nosuch":1}`)); err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("a change with an unknown key: %v", err)
	}
}

func TestGeneratorInAProcessOfItsOwnReportsItsProgress(t *testing.T) {
	r := newRig(t)
	s, err := r.StartSSP(SSPOptions{Name: "one", Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond)}})
	testsupport.NoError(t, err)
	p := plan(s.Addr)
	p.Tick = 5 * time.Millisecond
	calls := 0
	result, err := r.Generate(t.Context(), p, "", func(load.Progress) { calls++ })
	if err != nil || result.Whole.Answered != 20 || calls == 0 {
		t.Errorf("%v, %d answers, progress reported %d times", err, result.Whole.Answered, calls)
	}
}

func TestSSPWithTLSReportsItsCA(t *testing.T) {
	s, err := newRig(t).StartSSP(SSPOptions{Name: "two", Protocol: sspsim.TLSHTTP2})
	testsupport.NoError(t, err)
	pem, err := os.ReadFile(s.CAFile)
	if err != nil || !strings.Contains(string(pem), "BEGIN CERTIFICATE") || !strings.HasPrefix(s.URL, "https://") {
		t.Errorf("%s, %q, %v", s.URL, pem, err)
	}
}

func TestImpossibleBehaviourIsTheChildsError(t *testing.T) {
	_, err := newRig(t).StartSSP(SSPOptions{Name: "bad", Protocol: "gopher"})
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "gopher"), "%v", err)
}

func TestHeldConnectionsStayOpenUntilReleased(t *testing.T) {
	r := newRig(t)
	s, err := r.StartSSP(SSPOptions{Name: "idle"})
	testsupport.NoError(t, err)
	release, err := Hold(t.Context(), s.URL, nil, 50, false)
	testsupport.NoError(t, err)
	if c, err := s.Counters(); err != nil || c.OpenConnections != 50 || c.Requests != 50 {
		t.Errorf("%d open, %d requests, %v", c.OpenConnections, c.Requests, err)
	}
	release()
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		if c, err := s.Counters(); err == nil && c.OpenConnections == 0 {
			return
		}
	}
	t.Error("connections are open after their release")
}

func TestCloseEndsAllProcessesAndRemovesTheFolder(t *testing.T) {
	r := newRig(t)
	up := &Route{Serve: "hello"}
	testsupport.NoError(t, r.StartProgram(t.Context(), "constant", "", "", up))
	c, err := net.Dial("tcp", up.Addr)
	testsupport.NoError(t, err)
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	r.Close()
	testsupport.True(t, !up.Process.Running(), "the process runs on")
	if _, err := os.Stat(r.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestErrorOfAProcessThatEndsEarlyHasItsOutput(t *testing.T) {
	r := newRig(t)
	p, err := r.Start(Command{Name: "shell", Argv: []string{"sh", "-c", "echo no such thing; exit 3"}})
	testsupport.NoError(t, err)
	err = p.AwaitPort(t.Context(), "127.0.0.1:1", 30*time.Second)
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "no such thing"), "%v", err)
	if _, err := Find("no-such-program"); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
}

func TestPortsOfFreeAddrAreReservedUntilClose(t *testing.T) {
	r := newRig(t)
	seen := make(map[string]bool)
	for range 200 {
		addr, err := r.FreeAddr()
		testsupport.MustTrue(t, err == nil && !seen[addr], "%s was returned before, or %v", addr, err)
		seen[addr] = true
	}
	r.Close()
	testsupport.Equal(t, len(r.reserved), 0, "%d ports are reserved after Close")
}
