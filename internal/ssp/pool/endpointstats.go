package pool

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
)

// endpointStats holds an endpoint's counters. A pool that replaces another one continues them.
type endpointStats struct {
	outcomes  [exchange.Outcomes]atomic.Uint64 // attempts by outcome
	duration  *metrics.Histogram
	ejections atomic.Uint64
	failed    [dialErrors]atomic.Uint64 // failed dials by kind of error
	// Health checks that succeeded, and that failed.
	checksOK, checksFailed atomic.Uint64
}

func newEndpointStats() *endpointStats { return &endpointStats{duration: requestHistogram()} }

func (s *endpointStats) ended(o exchange.Outcome, took time.Duration) {
	s.outcomes[o].Add(1)
	s.duration.ObserveDuration(max(took, 0))
}

func (s *endpointStats) checkEnded(err error) {
	if err == nil {
		s.checksOK.Add(1)
	} else {
		s.checksFailed.Add(1)
	}
}

func (s *endpointStats) dialFailed(err error) { s.failed[dialErrorKind(err)].Add(1) }

// lookedUpFor returns the endpoint whose look-up failed with err. If err names no endpoint, it
// returns the first one.
func (s *endpoints) lookedUpFor(err error) *endpoint {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		for _, e := range s.all {
			if host, _, err := net.SplitHostPort(e.Name); err == nil && host == dns.Name {
				return e
			}
		}
	}
	return s.all[0]
}
