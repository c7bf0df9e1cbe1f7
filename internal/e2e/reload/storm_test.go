package reload

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

const (
	stormReloads = 100
	stormPause   = 60 * time.Millisecond // from one reload to the next, at least
	stormClients = 32
	stormRate    = 5000 // target in requests a second; a slow machine reaches fewer
)

// storm is a configuration that changes continuously, and its SSPs.
type storm struct {
	sims [5]*sspsim.SSP
}

// config is the configuration of step i. The storm begins and ends with step 0. Every tenth step
// has an error.
func (s *storm) config(i int) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("deadline: {reserve: %dms}", 5+i%3)
	p("ssp_defaults: {pool: {idle_timeout: 300ms}}")
	p("ssps:")
	p("  - {name: stays, endpoints: [%q]}", s.sims[0].URL())
	p("  - {name: limits, endpoints: [%q], max_in_flight: %d, pool: {max_conns: %d, max_pending: %d}, timeouts: {request: %ds}}",
		s.sims[1].URL(), 1000+i, 4+i%60, 500+i, 10+i%5)
	p("  - {name: moves, endpoints: [%q], pool: {max_age: %dm}}", s.sims[2+i%2].URL(), 1+i%7)
	split := "stays"
	if i%3 > 0 {
		p("  - {name: comes, endpoints: [%q], protocol: http1}", s.sims[4].URL())
		split += ", comes"
	}
	if i%4 > 1 {
		p("  - {name: goes, endpoints: [%q], pool: {min_idle: 2}}", s.sims[4].URL())
		split += ", goes"
	}
	p("routes:")
	for _, name := range []string{"stays", "limits", "moves"} {
		p("  - {name: %s, match: {path: /%s}, ssps: [%s]}", name, name, name)
	}
	p("  - {name: split, match: {path: /split}, mode: split, ssps: [%s]}", split)
	p("  - {name: all, match: {path: /all}, mode: parallel-first, ssps: [%s]}", split)
	if i%10 == 9 {
		p("%s", []string{"routes: again", "server: {max_conections: 5}", "log: {format: console}", "\tno YAML"}[i/10%4])
	}
	return b.String()
}

var stormTargets = []string{"/stays?n=", "/limits?n=", "/moves?n=", "/split?n=", "/all?n="}

// footprint is what a process holds and exports.
type footprint struct {
	goroutines, files int
	where             string // functions of the goroutines
	series            []string
}

// goroutines returns the number of goroutines and their functions. It leaves out idle workers of
// the server, which are kept for ten seconds.
func goroutines(ab *e2e.Process) (n int, where string) {
	ab.T.Helper()
	_, stacks := ab.AskAdmin("/debug/pprof/goroutine?debug=1")
	for block := range strings.SplitSeq(stacks, "\n\n") {
		if count, _, ok := strings.Cut(block, " @ "); ok && !strings.Contains(block, "fasthttp.(*workerPool).workerFunc") {
			c, err := strconv.Atoi(count[strings.LastIndexByte(count, '\n')+1:])
			if err != nil {
				ab.T.Fatalf("/debug/pprof/goroutine: %.400s", block)
			}
			n += c
			where += block + "\n"
		}
	}
	if n == 0 {
		ab.T.Fatalf("/debug/pprof/goroutine: %.400s", stacks)
	}
	return n, where
}

func footprintOf(ab *e2e.Process) (f footprint) {
	ab.T.Helper()
	f.goroutines, f.where = goroutines(ab)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", ab.Cmd.Process.Pid))
	if err != nil {
		ab.T.Fatal(err)
	}
	f.files = len(open)
	for name, all := range ab.Scrape().Series {
		for _, s := range all {
			f.series = append(f.series, name+s.Labels)
		}
	}
	slices.Sort(f.series)
	return f
}

// drains reports whether a pool still drains after a reload.
func (f *footprint) drains() bool { return strings.Contains(f.where, "drainLeftover") }

// settle waits until no connection to an SSP is open.
func (s *storm) settle(t *testing.T) {
	t.Helper()
	for _, sim := range s.sims {
		wantNoConnections(t, sim)
	}
}

// This test is not parallel. It measures the resources of the process, and other tests would use
// the CPU that the load needs.
func TestHundredReloadsUnderLoadFailNoRequestAndLeakNothing(t *testing.T) {
	testsupport.Long(t)
	s := new(storm)
	for i := range s.sims {
		s.sims[i] = e2e.StartSSP(t, sspsim.Options{})
	}
	ab := e2e.StartReloadable(t, s.config(0))
	warm := &e2e.Worker{Process: ab.Process}
	for range 3 {
		for _, target := range stormTargets {
			if _, err := warm.Exchange("GET", target, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	ab.Take(s.config(1)) // the first reload makes some one-time allocations
	ab.Take(s.config(0))
	warm.Close()
	s.settle(t)
	var before footprint
	testsupport.Eventually(t, "clients and old pools are closed", func() bool {
		before = footprintOf(ab.Process)
		return !before.drains() && ab.Metric("adbuffer_client_connections") == 0
	})

	var stop atomic.Bool
	var sent, failures atomic.Int64
	responded := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(responded)
		ab.Concurrently(stormClients, func(w *e2e.Worker) error {
			for next := time.Now(); !stop.Load(); {
				target := stormTargets[sent.Add(1)%int64(len(stormTargets))]
				switch a, err := w.Exchange("GET", target, ""); {
				case err != nil:
					failures.Add(1)
					return err
				case a.Status != 200 || !strings.HasPrefix(a.Header("X-Adbuffer-Source"), "ssp/"):
					if failures.Add(1) <= 10 {
						t.Errorf("%s: %d %s %s", target, a.Status, a.Header("X-Adbuffer-Source"), a.Body)
					}
				}
				next = next.Add(stormClients * time.Second / stormRate)
				if now := time.Now(); next.Before(now) {
					next = now // missed requests of a slow machine are not sent later
				}
				time.Sleep(time.Until(next))
			}
			return nil
		})
	}()
	refused := 0
	pause := time.NewTicker(stormPause)
	defer pause.Stop()
	for i := 1; i <= stormReloads; i++ {
		<-pause.C
		ab.Write(s.config(i))
		if i%2 == 0 {
			ab.Signal(syscall.SIGHUP)
		}
		status, res := ab.Post()
		switch bad := i%10 == 9; {
		case bad && status == 422 && res.Result == "refused":
			refused++
		case bad || status != 200:
			t.Errorf("reload %d gets %d %+v", i, status, res)
		}
	}
	took := time.Since(began)
	stop.Store(true)
	<-responded
	t.Logf("%d reloads, %d of them refused, and %d requests in %v: %.0f requests/s", stormReloads, refused, sent.Load(), took.Round(time.Millisecond), float64(sent.Load())/took.Seconds())
	if n := failures.Load(); n > 0 {
		t.Errorf("%d of %d requests failed", n, sent.Load())
	}
	if refused != stormReloads/10 {
		t.Errorf("%d reloads were refused, want %d", refused, stormReloads/10)
	}

	ab.Take(s.config(0))
	ab.AwaitMetric(1, "adbuffer_config_last_reload_successful")
	s.settle(t)
	var after footprint
	for end := time.Now().Add(testsupport.Patience); ; time.Sleep(20 * time.Millisecond) {
		after = footprintOf(ab.Process)
		if !after.drains() && after.goroutines <= before.goroutines && after.files <= before.files {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("before, there were %d goroutines and %d open files; now %d and %d:\n%s", before.goroutines, before.files, after.goroutines, after.files, after.where)
		}
	}
	if !slices.Equal(after.series, before.series) {
		t.Errorf("new series: %v\nlost series: %v", missing(before.series, after.series), missing(after.series, before.series))
	}
}

// missing returns the elements of all that are not in known.
func missing(known, all []string) (left []string) {
	for _, s := range all {
		if _, ok := slices.BinarySearch(known, s); !ok {
			left = append(left, s)
		}
	}
	return left
}
