package pool

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
)

// acquireOutcome says how a request got its place, or why it got none. It is the label `outcome` of
// adbuffer_pool_acquire_seconds.
type acquireOutcome uint8

const (
	reused   acquireOutcome = iota // a place was free at once
	dialed                         // waited for a connection that the pool opened
	waited                         // waited for a place that another request released
	full                           // the queue was full
	timedOut                       // waited too long, or no place could come
	acquireOutcomes
)

var acquireOutcomeNames = [acquireOutcomes]string{"reused", "dialed", "waited", "full", "timeout"}

// dialError is the label `kind` of adbuffer_pool_dial_errors_total.
type dialError uint8

const (
	dialDNS dialError = iota
	dialRefused
	dialTimeout
	dialReset
	dialTLS
	dialALPN
	dialLocal
	dialOther
	dialErrors
)

var dialErrorNames = [dialErrors]string{"dns", "refused", "timeout", "reset", "tls", "alpn", "local", "other"}

func dialErrorKind(err error) dialError {
	var dns *net.DNSError
	switch {
	case isLocal(err):
		return dialLocal
	case errors.Is(err, exchange.ErrALPN):
		return dialALPN
	case errors.As(err, &dns):
		return dialDNS
	case errors.Is(err, os.ErrDeadlineExceeded), exchange.IsTimeout(err):
		return dialTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return dialRefused
	case errors.Is(err, syscall.ECONNRESET):
		return dialReset
	case exchange.AsError(err).Outcome == exchange.TLSFailed:
		return dialTLS
	default:
		return dialOther
	}
}

// stats holds the pool's counters. They are atomic, so that a scrape does not delay requests.
type stats struct {
	acquire         [acquireOutcomes]*metrics.Histogram
	hold            *metrics.Histogram
	requestsPerConn prometheus.Histogram
	dns, tcp, tls   prometheus.Histogram

	openedBy [exchange.Protocols]atomic.Uint64
	closedBy [exchange.CloseReasons]atomic.Uint64

	arrivals   *metrics.Counter
	successes  *metrics.Counter
	limitWaits atomic.Uint64 // requests that found no place, and might not dial because of the limit
	stale      atomic.Uint64
	demotions  atomic.Uint64
	// fairEvicted counts the requests that left a full queue to make room for another key's.
	fairEvicted atomic.Uint64
}

const ms = time.Millisecond

func newStats() *stats {
	s := &stats{
		hold:            requestHistogram(),
		requestsPerConn: prometheus.NewHistogram(prometheus.HistogramOpts{Buckets: []float64{10, 100, 1000}}),
		arrivals:        metrics.NewCounter(),
		successes:       metrics.NewCounter(),
		dns:             dialHistogram(),
		tcp:             dialHistogram(),
		tls:             dialHistogram(),
	}
	for o := range acquireOutcomes {
		s.acquire[o] = acquireHistogram(o)
	}
	return s
}

// acquireHistogram has classic buckets only for the outcomes that are waits: each bucket is a series for each SSP, and
// a request that gets an idle place, or finds the queue full, does not wait.
func acquireHistogram(o acquireOutcome) *metrics.Histogram {
	if o == reused || o == full {
		return metrics.Durations()
	}
	return metrics.Durations(1*ms, 2500*time.Microsecond, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms)
}

// requestHistogram has buckets up to the longest usual deadline of an ad request.
func requestHistogram() *metrics.Histogram {
	return metrics.Durations(20*ms, 100*ms, 200*ms, 500*ms)
}

func dialHistogram() prometheus.Histogram { return metrics.NewDurations(0.005, 0.05, 0.5) }

func (s *stats) acquired(o acquireOutcome, d time.Duration) { s.acquire[o].ObserveDuration(d) }

// refused counts a request that was queued at the given time and got an error.
func (s *stats) refused(err error, queued time.Time) {
	o := timedOut
	if exchange.AsError(err).Outcome == exchange.PendingFull {
		o = full
	}
	s.acquired(o, time.Since(queued))
}

// closed counts a removed member. The connection's own reason takes precedence over the pool's.
func (s *stats) closed(m *member) {
	why := m.conn.CloseReason()
	if why == exchange.NotClosed {
		why = m.why
	}
	s.closedBy[why].Add(1)
	s.requestsPerConn.Observe(float64(m.requests))
}

func (s *stats) dialed(d dialDurations) {
	s.dns.Observe(d.dns.Seconds())
	if d.tcp > 0 {
		s.tcp.Observe(d.tcp.Seconds())
	}
	if d.tls > 0 {
		s.tls.Observe(d.tls.Seconds())
	}
}
