package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"adbuffer/internal/sspsim"
)

// The tests of this package run the real binary against real sockets: an
// adbuffer process (e2e_process_test.go), simulated SSPs in this process, raw
// clients (e2e_client_test.go), nginx and Prometheus. Where the tests run with
// the race detector, so does the binary.

// patience bounds every wait of a test; it passes only when something is broken.
const patience = 60 * time.Second

// waitingTests run at once: most of them wait most of the time.
const waitingTests = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	atOnce := true
	flag.Visit(func(f *flag.Flag) { atOnce = atOnce && f.Name != "test.parallel" })
	if atOnce {
		flag.Set("test.parallel", waitingTests) //nolint:errcheck // the flag exists
	}
	code := m.Run()
	if dir, err := binaryDir(); err == nil {
		os.RemoveAll(dir) //nolint:errcheck // a leftover temporary folder harms nobody
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var binaryDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "adbuffer-e2e-") })

// build makes the binary, once, when the first test needs it.
var build = sync.OnceValues(func() (string, error) {
	dir, err := binaryDir()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "adbuffer")
	args := []string{"build", "-o", file, "-ldflags", "-X adbuffer/internal/app.Version=v0.0.0-test"}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return file, nil
})

func binary(t testing.TB) string {
	t.Helper()
	file, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// simSSP is a simulated SSP, of this process.
type simSSP = sspsim.SSP

// sprintf fills in a configuration.
var sprintf = fmt.Sprintf

// startSSP starts a simulated SSP for the length of the test.
func startSSP(t testing.TB, o sspsim.Options) *sspsim.SSP {
	t.Helper()
	s, err := sspsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
	return s
}

// sspWith starts one that behaves so, and keeps its last 100 requests.
func sspWith(t testing.TB, b sspsim.Behaviour) *sspsim.SSP {
	t.Helper()
	return startSSP(t, sspsim.Options{Behaviour: b, Record: 100})
}

// healthy starts one that answers all at once, and keeps its last 100 requests.
func healthy(t testing.TB) *sspsim.SSP { t.Helper(); return sspWith(t, sspsim.Behaviour{}) }

// failing starts one with these faults.
func failing(t testing.TB, f sspsim.Faults) *sspsim.SSP {
	t.Helper()
	return sspWith(t, sspsim.Behaviour{Faults: f})
}

// lastRequest returns the last request that s was sent.
func lastRequest(t testing.TB, s *sspsim.SSP) *sspsim.Request {
	t.Helper()
	all := s.Requests()
	if len(all) == 0 {
		t.Fatal("the SSP was sent no request")
	}
	return all[len(all)-1]
}

// wantAsked checks how many requests s was sent.
func wantAsked(t testing.TB, s *sspsim.SSP, n uint64) {
	t.Helper()
	if got := s.Counters().Requests; got != n {
		t.Errorf("the SSP was sent %d requests, want %d", got, n)
	}
}

// gated is an SSP that holds back its answers until the gate is opened.
type gated struct {
	*sspsim.SSP
	gate chan struct{}
	once sync.Once
}

// startGated starts one; arrivals are to be awaited with awaitRequests.
func startGated(t testing.TB, o sspsim.Options) *gated {
	t.Helper()
	g := &gated{gate: make(chan struct{})}
	o.OnRequest = func(*sspsim.Request) { <-g.gate }
	s, err := sspsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	g.SSP = s
	t.Cleanup(func() {
		g.open()
		s.Close() //nolint:errcheck // the test is over
	})
	return g
}

// open lets all answers go, those of later requests too.
func (g *gated) open() { g.once.Do(func() { close(g.gate) }) }

// awaitInFlight waits until the SSP has n requests that it has not answered.
func awaitInFlight(t testing.TB, s *sspsim.SSP, n int64) {
	t.Helper()
	if !s.AwaitCounters(patience, func(c sspsim.Counters) bool { return c.InFlight == n }) {
		t.Fatalf("the SSP has %d requests in flight, want %d", s.Counters().InFlight, n)
	}
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// caFile writes the authority of s's certificate to a file.
func caFile(t testing.TB, s *sspsim.SSP) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := s.CA().WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}
