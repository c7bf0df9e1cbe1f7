package ssp

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/metrics"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

const ms = time.Millisecond

// stats are the SSP's counters: atomics that are read at scrape time.
type stats struct {
	outcomes   [upstream.Outcomes]atomic.Uint64
	duration   *metrics.Histogram
	firstByte  *metrics.Histogram
	retries    [retryKinds]atomic.Uint64
	overBudget [retryKinds]atomic.Uint64 // refused by the retry budget
	hedgesWon  atomic.Uint64
	sent       atomic.Uint64 // including retries and hedges

	codes         codes
	noBids        noBids
	requestBytes  *metrics.Histogram
	responseBytes *metrics.Histogram
}

func newStats() *stats {
	s := &stats{duration: latency(4), firstByte: latency(1), requestBytes: sizes(), responseBytes: sizes()}
	s.codes.init()
	return s
}

// latency has buckets around the usual deadlines of ad requests: bidders get 80 to 1000 ms, and
// most respond within 250 ms. parts is how many steps a quantile has within a bucket.
func latency(parts int) *metrics.Histogram {
	return metrics.DurationsInParts(parts, ms, 2*ms, 5*ms, 10*ms, 20*ms, 35*ms, 50*ms, 75*ms, 100*ms, 150*ms, 200*ms, 250*ms, 300*ms, 400*ms, 500*ms, 1000*ms, 2500*ms, 5000*ms)
}

// sizes has buckets from a tracking pixel up to the largest body that the default settings allow.
func sizes() *metrics.Histogram {
	return metrics.NewHistogram(1, 0, 256, 512, 1<<10, 2<<10, 4<<10, 8<<10, 16<<10, 64<<10, 256<<10, 1<<20)
}

// record counts a call that began at start. trace is nil for a request that is not traced.
func (s *stats) record(o upstream.Outcome, start time.Time, t *upstream.Times, trace *tracing.Request) {
	s.outcomes[o].Add(1)
	trace.Observe(s.duration, t.Done.Sub(start), t.Done)
	if !t.FirstByte.IsZero() {
		trace.Observe(s.firstByte, t.FirstByte.Sub(start), t.FirstByte)
	}
}

// responded observes the sizes of a request's body and of its response's.
func (s *stats) responded(res *upstream.Response, bodyBytes int) {
	s.requestBytes.Observe(int64(bodyBytes))
	s.responseBytes.Observe(int64(len(res.Body)))
}

// Refused counts a call that was not sent: over a limit, or cancelled before it had begun. It
// observes no duration, since many short durations would hide the real ones. Do calls it by itself;
// other callers use it for requests that never reach Do.
func (s *SSP) Refused(o upstream.Outcome) { s.stats.outcomes[o].Add(1) }
