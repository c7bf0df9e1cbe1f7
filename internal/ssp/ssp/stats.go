package ssp

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/tcf"
	"adbuffer/internal/wire/tracing"
)

const ms = time.Millisecond

// stats are the SSP's counters: atomics that are read at scrape time.
type stats struct {
	outcomes   [exchange.Outcomes]atomic.Uint64
	duration   *metrics.Histogram
	firstByte  *metrics.Histogram
	retries    [retryKinds]atomic.Uint64
	overBudget [retryKinds]atomic.Uint64 // refused by the retry budget
	sent       atomic.Uint64             // including retries and hedges

	merges           atomic.Bool // a route has it with merge: openrtb
	leftOutBids      atomic.Uint64
	leftOutResponses atomic.Uint64

	decides   atomic.Bool // a condition with TCF decides whether the SSP is asked
	decisions [tcf.Decisions]atomic.Uint64

	codes         codes
	noBids        [noBidReasons]atomic.Uint64
	responseBytes prometheus.Histogram
}

func newStats() *stats {
	s := &stats{duration: metrics.RequestDurations(), firstByte: metrics.Durations(50*ms, 100*ms, 200*ms, 500*ms), responseBytes: sizes()}
	s.codes.init()
	return s
}

// sizes has buckets around a bid request and an ad.
func sizes() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Buckets: []float64{1 << 10, 8 << 10, 64 << 10}})
}

// record counts a call that began at start. trace is nil for a request that is not traced.
func (s *stats) record(o exchange.Outcome, start time.Time, t *exchange.Times, trace *tracing.Request) {
	s.outcomes[o].Add(1)
	trace.Observe(s.duration, t.Done.Sub(start), t.Done)
	if !t.FirstByte.IsZero() {
		trace.Observe(s.firstByte, t.FirstByte.Sub(start), t.FirstByte)
	}
}

// Refused counts a call that was not sent: over a limit, or cancelled before it had begun. It
// observes no duration, since many short durations would hide the real ones. Do calls it by itself;
// other callers use it for requests that never reach Do.
func (s *SSP) Refused(o exchange.Outcome) { s.stats.outcomes[o].Add(1) }

// CountMerges gives s the series of Merged: a route has it in a merge.
func (s *SSP) CountMerges() { s.stats.merges.Store(true) }

// CountDecisions gives s the series of Decided: a condition with TCF decides whether s is asked.
func (s *SSP) CountDecisions() { s.stats.decides.Store(true) }

// Decided counts a decision whether s may process a request.
func (s *SSP) Decided(d tcf.Decision) { s.stats.decisions[d].Add(1) }

// Merged counts a response that was read for merge: openrtb: how many of its bids were left out, or that the whole
// response was.
func (s *SSP) Merged(leftOutBids int, leftOut bool) {
	if leftOutBids > 0 {
		s.stats.leftOutBids.Add(uint64(leftOutBids))
	}
	if leftOut {
		s.stats.leftOutResponses.Add(1)
	}
}
