package app

import (
	"sync"

	"adbuffer/internal/ssp"
	"adbuffer/internal/upstream"
)

// observers is who hears of requests: the tracer, if there is one, all the time,
// and captures while they run. An SSP without either has none, which is what
// costs nothing.
type observers struct {
	traced func(*ssp.SSP) ssp.Observer // nil without tracing

	mu       sync.Mutex
	captures map[*ssp.SSP]ssp.Observer
}

// attach begins to trace s.
func (o *observers) attach(s *ssp.SSP) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setLocked(s)
}

// capture begins a capture of s, or, where f is nil, ends it. It reports whether
// there was no other.
func (o *observers) capture(s *ssp.SSP, f ssp.Observer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case f == nil:
		delete(o.captures, s)
	case o.captures[s] != nil:
		return false
	default:
		if o.captures == nil {
			o.captures = make(map[*ssp.SSP]ssp.Observer)
		}
		o.captures[s] = f
	}
	o.setLocked(s)
	return true
}

func (o *observers) setLocked(s *ssp.SSP) {
	var traced ssp.Observer
	if o.traced != nil {
		traced = o.traced(s)
	}
	captured := o.captures[s]
	switch {
	case traced == nil:
		s.Observe(captured)
	case captured == nil:
		s.Observe(traced)
	default:
		s.Observe(func(r *ssp.Request, ex *upstream.Exchange, out upstream.Outcome, err *upstream.Error) {
			traced(r, ex, out, err)
			captured(r, ex, out, err)
		})
	}
}
