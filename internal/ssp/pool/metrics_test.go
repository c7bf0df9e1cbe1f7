package pool

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// registry returns a registry that checks the metrics of the pools.
func registry(t testing.TB, pools ...*Pool) *prometheus.Registry {
	r := prometheus.NewPedanticRegistry()
	testsupport.NoError(t, r.Register(NewCollector(func() []*Pool { return pools })))
	return r
}

func wantExposition(t testing.TB, p *Pool, file string, names ...string) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	testsupport.NoError(t, err)
	defer f.Close()
	err = testutil.GatherAndCompare(registry(t, p), f, names...)
	testsupport.True(t, err == nil, "%v", err)
}

func TestEverySeriesExistsFromStart(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.Fair = true }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		wantExposition(t, p, "at-start.prom")
	})
}

func TestMetricsShowWhatThePoolDid(t *testing.T) {
	inBubble(t, func(o *Options) {
		auto(o)
		o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns, o.MaxPending = 6, 6, 1, 1
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult {
			switch c.n {
			case 1:
				return dialResult{after: 20 * msec, protocol: exchange.HTTP2, places: 2}
			case 3, 4:
				return dialResult{after: 3 * msec, err: errRefused}
			default:
				return dialResult{after: 10 * msec}
			}
		})
		a := acquire(t, p) // dialled: HTTP/1
		b := acquire(t, p) // dialled: HTTP/2
		c := acquire(t, p) // its second place
		d := acquire(t, p) // dialled: HTTP/1, because there may be only one HTTP/2 connection
		e, f := ask(t, p, sec), (*request)(nil)
		pass(10 * msec) // its dial fails twice: then it waits for a place
		f = ask(t, p, sec)
		pass(100 * msec)
		e.wantErr(exchange.PendingTimeout, 56*msec)
		f.wantErr(exchange.PendingFull, 0)
		a.do()
		s.conn(1).goAway(exchange.ClosedGoaway)
		wantExposition(t, p, "two-protocols.prom",
			"adbuffer_pool_connections", "adbuffer_pool_connections_limit", "adbuffer_pool_connections_opened_total",
			"adbuffer_pool_connections_closed_total", "adbuffer_pool_places_in_use", "adbuffer_pool_places_limit",
			"adbuffer_pool_saturation_ratio", "adbuffer_pool_saturation_max_ratio", "adbuffer_pool_pending_requests",
			"adbuffer_pool_acquire_seconds", "adbuffer_pool_hold_seconds", "adbuffer_pool_dial_errors_total")
		useAll([]*request{b, c, d})
		pass(3 * sec)
		acquire(t, p).do() // on an idle connection
		testsupport.Equal(t, counted(p, "pool_dial_seconds", "tcp"), 5, "%d dials have a duration")
	})
}

func TestMetricsFollowNamingRules(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fakeSSP, p *Pool) {
		problems, err := testutil.GatherAndLint(registry(t, p))
		testsupport.NoError(t, err)
		for _, problem := range problems {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	})
}

func TestSnapshotIsJSONWithNames(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fakeSSP, p *Pool) {
		acquire(t, p)
		b, err := json.Marshal(p.Snapshot())
		testsupport.NoError(t, err)
		for _, want := range []string{`"ssp":"openx"`, `"protocol":"http1"`, `"active":{"http1":1,"http1-pipelined":0,"http2":0}`, `"places_in_use":1`} {
			testsupport.True(t, strings.Contains(string(b), want), "%s is not in %s", want, b)
		}
	})
}
