package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// A service that gets a signal during its warm-up drains, and must not say "ready" to systemd and the log.
func TestASignalDuringTheWarmUpDoesNotMakeTheServiceReady(t *testing.T) {
	a, err := New(setup{ssps: []string{at("a", sim(t, sspsim.Options{}))}, routes: []string{to("x", "a")}}.load(t), zap.NewNop(), Process{})
	testsupport.NoError(t, err)
	defer a.Close()
	ended, stop := context.WithCancel(t.Context())
	stop()
	if a.warm(ended); a.Ready() {
		t.Error("the service is ready")
	}
	if a.warm(t.Context()); !a.Ready() {
		t.Error("the service is not ready after its warm-up")
	}
}

// While the start waits, /readyz and a line a second say for which SSP.
func TestTheStartSaysForWhichSSPItWaits(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	s := setup{ssps: []string{`name: down, endpoints: ["http://` + testsupport.FreeAddr(t) + `/"], pool: {min_idle: 2}`, at("a", sim(t, sspsim.Options{}))}, routes: []string{to("x", "a"), to("y", "down")}}
	a, err := New(s.load(t), zap.New(core), Process{})
	testsupport.NoError(t, err)
	defer a.Close()
	ctx, stop := context.WithCancel(t.Context())
	warm := make(chan struct{})
	go func() {
		defer close(warm)
		a.warm(ctx)
	}()
	const want = "starting: min_idle connections are being opened"
	testsupport.Eventually(t, "the log says for which SSP", func() bool {
		all := lines.FilterMessage(want).All()
		return len(all) > 0 && all[len(all)-1].ContextMap()["waiting_for"] == "down has 0 of 2 connections: connection refused"
	})
	testsupport.Equal(t, a.readiness().Error(), want+"; down has 0 of 2 connections: connection refused", "/readyz says %s")
	stop()
	<-warm
}

func TestTheDrainEndsPoolsOfEarlierVersionsToo(t *testing.T) {
	g := newGate()
	a, b := sim(t, sspsim.Options{OnRequest: g.hold}), sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	responses := v.inFlight(g, "/x", 1)
	s.ssps[0] = at("a", b)
	v.reload(s)
	v.want("/x", "a")
	v.stop()
	v.await("the drain has begun", func() bool { return v.app.state.Load() == draining })
	close(g.open)
	got := <-responses
	testsupport.True(t, got.status == 200, "the request on the old pool got %+v", got)
	<-v.ended
	testsupport.Equal(t, v.draining(), 0, "%d pools of earlier versions are left")
	for _, one := range []*sspsim.SSP{a, b} {
		wantNoConnections(t, one)
	}
}

func TestAnOldPoolIsCutAtTheEndOfTheDrainsTimeout(t *testing.T) {
	g := newGate()
	defer close(g.open)
	a, b := sim(t, sspsim.Options{OnRequest: g.hold}), sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}, more: "deadline: {default: 1m, max: 1m}"}
	v := run(t, s)
	responses := v.inFlight(g, "/x", 1)
	s.ssps[0] = at("a", b)
	s.drain = "50ms"
	v.reload(s)
	got := <-responses
	testsupport.True(t, got.source == "proxy/conn_lost", "the request that was cut got %+v", got)
	v.drained()
	l := v.logged(zap.ErrorLevel)
	testsupport.True(t, strings.Contains(l, "server.drain.timeout"), "the log says %s", l)
	s.drain = ""
	v.reload(s)
}

func TestConcurrentReloadsRunOneAfterTheOther(t *testing.T) {
	a, b := sim(t, sspsim.Options{}), sim(t, sspsim.Options{})
	setups := []setup{
		{ssps: []string{at("a", a), at("b", b)}, routes: []string{to("x", "a"), to("y", "b")}},
		{ssps: []string{at("b", b), at("a", b)}, routes: []string{to("x", "a"), to("y", "b")}},
	}
	v := run(t, setups[0])
	var wg sync.WaitGroup
	for i := range 10 {
		cfg := setups[i%2].load(t)
		wg.Go(func() {
			if _, err := v.app.Reload(t.Context(), cfg, new(reload.Trial)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	v.want("/x", "a")
	v.want("/y", "b")
	g := v.app.versions.Current()
	testsupport.True(t, len(g.SSPs) == 2 && g.SSPs[0].Name() == g.Config.SSPs[0].Name, "the version in force is %+v", g)
	v.drained()
}

func TestOperatorsSettingsApplyAtOnce(t *testing.T) {
	a := sim(t, sspsim.Options{})
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, []byte("one\n"))
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}, admin: "token_file: \"" + file + "\""}
	v := run(t, s)
	testsupport.Equal(t, v.app.adminOptions().Token(), "one", "the token is %q")
	if got := v.admin("/capture?ssp=a"); !strings.Contains(got, "admin.capture") {
		t.Errorf("captures are off, but the response is %s", got)
	}
	write(t, file, []byte("another\n"))
	s.admin += ", capture: true"
	s.log = "level: warn, access: {enabled: true, sample: 1}"
	v.reload(s)
	testsupport.Equal(t, v.app.adminOptions().Token(), "another", "the token is %q after the reload")
	testsupport.Equal(t, v.level.Level(), zap.WarnLevel, "the log's level is %v")
	v.level.SetLevel(zap.ErrorLevel) // by an operator: it lasts until log.level changes
	v.reload(s)
	testsupport.Equal(t, v.level.Level(), zap.ErrorLevel, "after a reload with the same log.level the level is %v")
	s.log = "level: info, access: {enabled: true, sample: 1}"
	v.reload(s)
	testsupport.Equal(t, v.level.Level(), zap.InfoLevel, "the log's level is %v")
	got := make(chan string, 1)
	go func() { got <- v.admin("/capture?ssp=a&wait=30s") }()
	s.ssps[0] = at("a", a, "max_in_flight: 9")
	v.reload(s) // a capture continues
	var shown string
	v.await("the capture has a request", func() bool {
		v.want("/x", "a")
		select {
		case shown = <-got:
			return true
		default:
			return false
		}
	})
	testsupport.True(t, strings.Contains(shown, `"outcome": "fill"`), "the capture shows %s", shown)
	testsupport.True(t, v.logs.FilterMessage("request").Len() != 0, "no request is in the access log")
}

// receiver accepts spans and counts the requests that carry them.
func receiver(t *testing.T) (url string, got *atomic.Int64) {
	got = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	t.Cleanup(s.Close)
	return s.URL, got
}

func TestTracingCanBeTurnedOnMovedAndTurnedOff(t *testing.T) {
	a := sim(t, sspsim.Options{})
	one, atOne := receiver(t)
	two, atTwo := receiver(t)
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	v.want("/x", "a")
	testsupport.True(t, !strings.Contains(v.admin("/metrics"), "adbuffer_trace_spans_total"), "spans are counted, but tracing is off")
	s.more = "tracing: {endpoint: \"" + one + "\", sample: 1}"
	s.ssps = append(s.ssps, at("b", a))
	s.routes = append(s.routes, to("y", "b"))
	v.reload(s)
	v.want("/x", "a")
	v.want("/y", "b")
	v.await("spans arrive at the first receiver", func() bool { return atOne.Load() > 0 })
	s.more = "tracing: {endpoint: \"" + two + "\", sample: 1}"
	v.reload(s)
	v.want("/x", "a")
	v.await("spans arrive at the second receiver", func() bool { return atTwo.Load() > 0 })
	s.ssps, s.routes = append(s.ssps, at("c", a)), append(s.routes, to("z", "c"))
	v.reload(s) // tracing stays on, and includes the new SSP
	before := v.metric(`trace_spans_total{state="made"}`)
	v.want("/z", "c")
	now := v.metric(`trace_spans_total{state="made"}`)
	testsupport.True(t, before != "" && now != before, "a request to an SSP that was added while tracing was on makes no span: %q after %q", now, before)
	s.more = ""
	v.reload(s)
	testsupport.True(t, v.app.versions.Current().Tracer == nil, "there is a tracer")
	v.await("the tracers are closed", func() bool { return testsupport.Goroutines("reload.(*Versions).drain") == 0 })
	v.want("/x", "a")
}

func TestASettingOfTheDeadlineReachesEverySSP(t *testing.T) {
	a := sim(t, sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Stall: sspsim.Always}}})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}, more: "deadline: {default: 20s, max: 20s}"}
	v := run(t, s)
	pool := v.pool()
	s.more = "deadline: {default: 30ms, max: 40ms}"
	v.reload(s)
	got := v.get("/x")
	testsupport.True(t, got.source == "proxy/deadline", "got %+v, want deadline", got)
	testsupport.Equal(t, v.pool(), pool, "the pool is another: %v")
	v.await("timeouts count against an SSP that had deadline.default", func() bool {
		v.get("/x")
		return v.app.versions.Current().Parts[0].SSP.Snapshot().BreakerFailures > 0
	})
}

func TestAnAppThatNeverRanReloadsAndClosesWithoutLeaks(t *testing.T) {
	a, b := sim(t, sspsim.Options{}), sim(t, sspsim.Options{})
	s := setup{ssps: []string{at("a", a, "pool: {min_idle: 2}")}, routes: []string{to("x", "a")}}
	app, err := New(s.load(t), zap.NewNop(), Process{})
	testsupport.NoError(t, err)
	s.ssps[0] = at("a", b, "pool: {min_idle: 2}")
	if _, err := app.Reload(t.Context(), s.load(t), new(reload.Trial)); err != nil {
		t.Error(err)
	}
	testsupport.True(t, b.AwaitCounters(patient, func(c sspsim.Counters) bool { return c.OpenConnections == 2 }), "min_idle connections were not opened")
	app.Close()
	if _, err := app.Reload(t.Context(), s.load(t), new(reload.Trial)); !errors.Is(err, reload.ErrStopping) {
		t.Errorf("after Close, a reload says %v", err)
	}
}

func TestADrainDuringAReloadEndsBoth(t *testing.T) {
	a := sim(t, sspsim.Options{})
	away := sim(t, sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{BlackHole: true}}})
	s := setup{ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	v := run(t, s)
	v.want("/x", "a")
	s.ssps[0] = at("a", away, "timeouts: {connect: 10s}")
	cfg := s.load(t)
	reloaded := make(chan error, 1)
	go func() {
		_, err := v.app.Reload(t.Context(), cfg, new(reload.Trial))
		reloaded <- err
	}()
	v.await("the reload has begun", func() bool {
		return testsupport.Goroutines("reload.(*prepared).prewarm") > 0
	})
	v.stop()
	err := <-reloaded
	testsupport.True(t, err == nil || errors.Is(err, reload.ErrStopping), "the reload says %v", err)
	<-v.ended
	wantNoConnections(t, a)
}
