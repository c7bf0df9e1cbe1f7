package logs

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// AccessOptions are the settings `log.access`. Package config says what the tags mean.
type AccessOptions struct {
	Enabled  bool          `yaml:"enabled"`
	Sample   float64       `yaml:"sample" default:"0.01" min:"0" max:"1"` // share of requests that get a line
	Failures bool          `yaml:"failures" default:"true"`               // requests that ended in a 5xx get one too
	Slow     time.Duration `yaml:"slow" min:"0s" max:"10m"`               // and requests that took longer; 0 = none
}

// linesPerSecond bounds the lines that Failures and Slow add in a second: an outage of the SSPs must not
// fill the disk, and a hundred requests show its causes.
const linesPerSecond = 100

// RequestLog receives records of requests. A nil RequestLog wants none.
type RequestLog struct {
	to       *zap.Logger
	limiter  *Limiter // counts lines that are suppressed
	lines    window   // of Failures and Slow
	failures failures
	watchers watchers
}

// NewRequestLog returns a RequestLog that writes its lines to to.
func NewRequestLog(to *zap.Logger, limiter *Limiter) *RequestLog {
	return &RequestLog{to: to, limiter: limiter}
}

// message is the message of all lines of the access log.
const message = "request"

// wanted says which outputs need the record of a request. The zero wanted needs none.
type wanted struct {
	reason            Reason
	watched, remember bool
}

// None reports that no record is wanted.
func (w wanted) None() bool { return w == wanted{} }

// Wants returns the outputs that need the record of a request that ended now. failed says that it
// ended in a 5xx of adbuffer or of an SSP. For an unwanted request, Wants takes no lock and reads
// no clock.
func (l *RequestLog) Wants(o *AccessOptions, failed bool, took time.Duration, now time.Time) (w wanted) {
	if l == nil {
		return w
	}
	w.watched = l.watchers.any()
	w.remember = failed && l.failures.wants(now)
	if !o.Enabled {
		return w
	}
	switch {
	case failed && o.Failures:
		w.reason = Failure
	case o.Slow > 0 && took > o.Slow:
		w.reason = Slow
	default:
		if rand.Float64() < o.Sample {
			w.reason = Sampled
		}
		return w
	}
	if !l.lines.allow(now, linesPerSecond) {
		w.reason = NoReason
		l.limiter.suppress(message)
	}
	return w
}

// Write passes the record to the outputs that want it. It keeps r.
func (l *RequestLog) Write(r *Record, w wanted) {
	r.Reason = w.reason
	if w.reason != NoReason {
		l.to.Info(message, r.Fields()...)
	}
	if w.remember {
		l.failures.add(r)
	}
	if w.watched {
		l.watchers.tell(r)
	}
}

// Failures returns the last requests that failed, the last one first. If very many requests fail in
// one second, it keeps only some of them.
func (l *RequestLog) Failures() []*Record { return l.failures.last() }

// window counts events of the current second.
type window struct {
	state atomic.Uint64 // the second in the upper half, its number of events in the lower
}

// allow counts an event, and reports whether it is among the first n of its second.
func (w *window) allow(now time.Time, n int) bool {
	second := uint64(uint32(now.Unix())) << 32
	for {
		old := w.state.Load()
		next := old + 1
		// A time of the previous second belongs to a request that came here late. It counts in the
		// current second. If the window went back, the current second would begin again.
		if ahead := int32(uint32(second>>32) - uint32(old>>32)); ahead != 0 && ahead != -1 {
			next = second + 1
		} else if uint64(uint32(old)) >= uint64(n) {
			return false
		}
		if w.state.CompareAndSwap(old, next) {
			return true
		}
	}
}
