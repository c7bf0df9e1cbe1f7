package main

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"adbuffer/internal/sspsim"
)

func TestADrainAnswersWhatIsInFlightAndExitsWith0(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=2s")
	busy, idle := ab.dial(), ab.dial()
	busy.send(request("POST", "/fillbuffer", `{"id":"1"}`))
	awaitInFlight(t, s.SSP, 1)

	ab.signal(syscall.SIGTERM)
	// Not ready at once, yet alive and accepting for the delay.
	eventually(t, "/readyz answers 503", func() bool { status, body := ab.ask("/readyz"); return status == 503 && body == "draining\n" })
	if status, _ := ab.ask("/healthz"); status != 200 {
		t.Errorf("/healthz answers %d, want 200", status)
	}
	s.open()
	for _, c := range []*client{busy, idle, ab.dial()} {
		if c != busy {
			c.send(request("GET", "/fillbuffer", ""))
		}
		if got := c.read("GET").wantFill("openx").header("Connection"); got != "close" {
			t.Errorf("Connection: %q during the drain, want close", got)
		}
		c.wantClosed()
	}
	ab.wantExit(0)
	if n := s.Counters().OpenConnections; n != 0 {
		t.Errorf("%d connections to the SSP are still open", n)
	}
}

func TestADrainWaitsForWhatIsInFlightAfterItStoppedAccepting(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, single(s.URL()))
	busy, idle, kept := ab.dial(), ab.dial(), ab.dial()
	busy.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 1)
	kept.send(request("GET", "/nowhere", "")) // has been served before
	kept.read("GET").wantStatus("no route", 404)

	ab.signal(syscall.SIGTERM)
	eventually(t, "nobody listens", func() bool {
		c := &worker{ab: ab}
		defer c.close()
		_, err := c.exchange("GET", "/nowhere", "")
		return err != nil
	})
	kept.wantClosed() // idle clients are closed
	idle.wantClosed()
	if ab.hasEnded() {
		t.Error("it did not wait")
	}
	s.open()
	if got := busy.read("GET").wantFill("openx").header("Connection"); got != "close" {
		t.Errorf("Connection: %q, want close", got)
	}
	busy.wantClosed()
	ab.wantExit(0)
}

func TestADrainThatCutsRequestsExitsWith1(t *testing.T) {
	t.Parallel()
	s := startGated(t, sspsim.Options{})
	ab := start(t, "server: {drain: {timeout: 200ms}}\n"+single(s.URL()))
	busy := ab.dial()
	busy.send(request("GET", "/fillbuffer", ""))
	awaitInFlight(t, s.SSP, 1)
	ab.signal(syscall.SIGTERM)
	ab.wantExit(1)
	busy.wantClosed()
	line, ok := ab.log.line("stopped, with requests cut; see server.drain.timeout")
	if !ok || line["cut"] != 1.0 {
		t.Errorf("the log does not say what was cut:\n%s", ab.log)
	}
}

func TestASecondSignalEndsTheWait(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		delay string
		code  int
		busy  bool
	}{
		{"during the delay, with nothing in flight", "10m", 0, false},
		{"during the delay", "10m", 1, true},
		{"after the delay", "0s", 1, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := startGated(t, sspsim.Options{})
			ab := start(t, "server: {drain: {timeout: 1h}}\n"+single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY="+row.delay)
			if row.busy {
				ab.dial().send(request("GET", "/fillbuffer", ""))
				awaitInFlight(t, s.SSP, 1)
			}
			ab.signal(syscall.SIGTERM)
			eventually(t, "draining", func() bool { _, ok := ab.log.line("draining"); return ok })
			if ab.hasEnded() && row.delay != "0s" {
				t.Error("it did not wait")
			}
			ab.signal(syscall.SIGINT)
			ab.wantExit(row.code)
		})
	}
}

// Load goes on while the service stops: nobody who was let in goes without an
// answer.
func TestADrainUnderLoadLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := sspWith(t, sspsim.Behaviour{Latency: sspsim.Lognormal(2e6, 20e6)})
	ab := start(t, single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=300ms")
	ab.exitIsTested = true
	var all tally
	ab.concurrently(20, func(w *worker) error {
		for i := 0; ; i++ {
			if w.id == 0 && i == 20 {
				ab.signal(syscall.SIGTERM)
			}
			fresh := w.c == nil
			a, err := w.exchange("GET", "/fillbuffer", "")
			switch {
			case err == nil:
				all.add(a)
			case fresh:
				return nil // nobody listens any more
			default:
				return err
			}
		}
	})
	ab.wantExit(0)
	all.log(t, "answers")
	if all.of("ssp/openx 200") != all.total() {
		t.Error("not all were answered by the SSP")
	}
}

func TestAUnixSocketIsServedWithItsMode(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	path := filepath.Join(t.TempDir(), "ad.sock")
	ab := start(t, "server: {socket_mode: \"0620\"}\n"+single(s.URL()), "ADBUFFER_SERVER_LISTEN=unix:"+path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode()&os.ModeSocket == 0 || info.Mode().Perm() != 0o620 {
		t.Errorf("mode %v, want a socket of 0620", info.Mode())
	}
	// A unix peer is always believed.
	ab.get("/fillbuffer", "X-Forwarded-For: 203.0.113.77").wantFill("openx")
	if got := identityFields(lastRequest(t, s)); !slices.Equal(got, []string{"X-Forwarded-For: 203.0.113.77"}) {
		t.Errorf("the SSP was told %q", got)
	}
	// A second one finds it served, and leaves it alone.
	file := filepath.Join(t.TempDir(), "second.yaml")
	if err := os.WriteFile(file, []byte(single(s.URL())), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := command(t, append(slices.Clone(patient), "ADBUFFER_SERVER_LISTEN=unix:"+path), "serve", "--config", file)
	if code != 1 {
		t.Errorf("exit status %d, want 1: %s", code, stderr)
	}
	ab.get("/fillbuffer").wantFill("openx")
	ab.signal(syscall.SIGTERM)
	ab.wantExit(0)
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket was left behind")
	}
	// What a killed process leaves behind is replaced.
	killed := start(t, single(s.URL()), "ADBUFFER_SERVER_LISTEN=unix:"+path)
	killed.signal(syscall.SIGKILL)
	killed.wantExit(-1)
	start(t, single(s.URL()), "ADBUFFER_SERVER_LISTEN=unix:"+path).get("/fillbuffer").wantFill("openx")
}
