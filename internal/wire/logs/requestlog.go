package logs

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// AccessOptions are the settings of log.access. Package config explains the tags.
type AccessOptions struct {
	Enabled  bool          `yaml:"enabled"`
	Sample   float64       `yaml:"sample" default:"0.01" min:"0" max:"1"` // the share of requests that get a line
	Failures bool          `yaml:"failures" default:"true"`               // all requests that ended with a 5xx status get a line
	Slow     time.Duration `yaml:"slow" min:"0s" max:"10m"`               // all requests that took longer get a line; 0 = none
}

// linesPerSecond bounds the lines that Failures and Slow add in a second. An outage of SSPs must not fill the disk,
// and a hundred requests show its causes.
const linesPerSecond = 100

// RequestLog receives records of requests. A nil RequestLog wants no records.
type RequestLog struct {
	to       *zap.Logger
	limiter  *Limiter                // counts lines that are suppressed
	lines    secondCounter           // lines because of Failures or Slow
	failures [RequestFailed]failures // by Failed, without NotFailed
	watchers watchers
}

// NewRequestLog returns a RequestLog that writes the access log to to. limiter counts the lines that are suppressed.
func NewRequestLog(to *zap.Logger, limiter *Limiter) *RequestLog {
	return &RequestLog{to: to, limiter: limiter}
}

// message is the message of all lines of the access log.
const message = "request"

// outputs says which outputs need the record of a request.
type outputs struct {
	reason   Reason
	watched  bool
	remember Failed // NotFailed = the request is not kept
}

// None reports whether no output needs a record.
func (w outputs) None() bool { return w == outputs{} }

// Wants returns the outputs that need the record of a request that ended now. If no output needs the record, Wants takes no lock.
func (l *RequestLog) Wants(o *AccessOptions, failed Failed, took time.Duration, now time.Time) (w outputs) {
	if l == nil {
		return w
	}
	w.watched = l.watchers.any()
	if failed != NotFailed && l.failures[failed-1].wants(now) {
		w.remember = failed
	}
	if !o.Enabled {
		return w
	}
	switch {
	case failed == RequestFailed && o.Failures:
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

// Write passes r to the outputs of w. The caller must not change r afterwards.
func (l *RequestLog) Write(r *Record, w outputs) {
	r.Reason = w.reason
	if w.reason != NoReason {
		l.to.Info(message, r.Fields()...)
	}
	if w.remember != NotFailed {
		l.failures[w.remember-1].add(r)
	}
	if w.watched {
		l.watchers.send(r)
	}
}

// Failures returns the requests that failed last, and the last ones of which only legs failed, the latest first. Of both
// kinds, at most keptFailures are kept, and at most failuresPerSecond of a second: failed legs displace no failed request.
func (l *RequestLog) Failures() []*Record {
	all := make([]*Record, 0, len(l.failures)*keptFailures)
	for i := range l.failures {
		all = l.failures[i].appendAll(all)
	}
	return newestFirst(all)
}

// secondCounter counts events of the current second.
type secondCounter struct {
	state atomic.Uint64 // the second in the high 32 bits, its number of events in the low 32 bits
}

// allow counts an event, and reports whether it is among the first n of its second.
func (w *secondCounter) allow(now time.Time, n int) bool {
	second := uint64(uint32(now.Unix())) << 32
	for {
		old := w.state.Load()
		next := old + 1
		// An event of the previous second may arrive late. It counts in the current second: if the counter went back,
		// the current second would start again.
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
