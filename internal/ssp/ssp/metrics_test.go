package ssp

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func registry(t *testing.T, ssps ...*SSP) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	testsupport.NoError(t, reg.Register(NewCollector(func() []*SSP { return ssps })))
	return reg
}

func wantMetrics(t *testing.T, reg *prometheus.Registry, want string, names ...string) {
	t.Helper()
	err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...)
	testsupport.True(t, err == nil, "%v", err)
}

func TestEverySeriesExistsFromTheStart(t *testing.T) {
	a := newSSP(options(nil), &fakePool{})
	b := newSSP(options(func(o *Options) { o.Name = "backup"; o.MaxInFlight = 7; o.QPS.Limit = 2.5 }), &fakePool{})
	reg := registry(t, a, b)
	outcomes := 0
	for o := range exchange.Outcomes {
		if o.Row().Ends&exchange.AtSSP != 0 {
			outcomes++
		}
	}
	// A series for each outcome but qps_limit, shaped and unreadable, each kind of retry but hedge twice, both effects of
	// Retry-After, each usual status and other. Nine series without a label of their own.
	perSSP := outcomes - 3 + 2*(int(retryKinds)-1) + 2 + len(usualCodes) + 1 + 9
	// backup has qps.limit, which adds an outcome and a counter.
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 2*perSSP+2 {
		t.Errorf("%d series, %v; want %d", n, err, 2*perSSP+2)
	}
	problems, err := testutil.GatherAndLint(reg)
	testsupport.True(t, err == nil && len(problems) == 0, "%v, %v", problems, err)
	wantMetrics(t, reg, `
# HELP adbuffer_concurrency_limit Requests to an SSP that may be in flight: max_in_flight, 0 for no limit.
# TYPE adbuffer_concurrency_limit gauge
adbuffer_concurrency_limit{ssp="backup"} 7
adbuffer_concurrency_limit{ssp="openx"} 0
`, "adbuffer_concurrency_limit")
}

func TestMetricsAndSnapshotShowEveryCounter(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{
			fail(notSent), after(30*msec, fill()), // a retry
			response(204, ""), response(503, "", "Retry-After: 3"),
		}}
		c := newClient(t, p, func(o *Options) {
			o.MaxInFlight = 9
			o.Breaker.MinRequests = 1
			o.Breaker.FailureRatio = 0
			o.Breaker.MinProbe = 1
		})
		for range 4 {
			c.get()
		}
		for range 2 {
			c.ssp.breaker.record(c.ssp.since(time.Now()), sameClient, true)
		}
		time.Sleep(time.Second)

		got := c.ssp.Snapshot()
		want := Snapshot{
			Outcomes: map[string]uint64{"fill": 1, "no_bid": 1, "server_error": 1, "ssp_backoff": 1},
			Sent:     4, Retries: map[string]uint64{"not_sent": 1, "not_processed": 0, "stale": 0, "hedge": 0},
			P50Seconds: 2.1579e-05, P99Seconds: 0.03125, ConcurrencyLimit: 9, BufferedBytesLimit: 1 << 20,
			BreakerFailures: 2, BreakerRequests: 4, BackoffSeconds: 2, RetryAfterPaused: 1,
		}
		testsupport.Equal(t, cmp.Diff(want, got), "", "-want +got\n%s")
		wantMetrics(t, registry(t, c.ssp), `
# HELP adbuffer_ssp_backoff_remaining_seconds How much longer requests to an SSP are refused because it asked for a pause, in seconds.
# TYPE adbuffer_ssp_backoff_remaining_seconds gauge
adbuffer_ssp_backoff_remaining_seconds{ssp="openx"} 2
# HELP adbuffer_ssp_in_flight_requests Requests to an SSP that are in flight, waiting ones included.
# TYPE adbuffer_ssp_in_flight_requests gauge
adbuffer_ssp_in_flight_requests{ssp="openx"} 0
# HELP adbuffer_ssp_request_duration_seconds Time of a request to an SSP, from its start to the complete response, in seconds. It includes the wait for a place and retries. Requests refused before they asked for a place are not counted.
# TYPE adbuffer_ssp_request_duration_seconds histogram
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.01"} 2
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.02"} 2
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.05"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.1"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.15"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.2"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.25"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.3"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.4"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.5"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="0.75"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="1"} 3
adbuffer_ssp_request_duration_seconds_bucket{ssp="openx",le="+Inf"} 3
adbuffer_ssp_request_duration_seconds_sum{ssp="openx"} 0.03
adbuffer_ssp_request_duration_seconds_count{ssp="openx"} 3
`, "adbuffer_ssp_backoff_remaining_seconds", "adbuffer_ssp_in_flight_requests", "adbuffer_ssp_request_duration_seconds")
	})
}
