package app

import (
	"sync"

	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

// observers is who hears of requests: the tracer, if there is one, all the time,
// and captures while they run. An SSP without either has none, which is what
// costs nothing.
//
// An SSP and its successors have one observer between them.
type observers struct {
	mu       sync.Mutex
	tracer   *tracing.Tracer         // nil without tracing
	captures map[string]ssp.Observer // by SSP
}

// trace makes g's tracer that of all its SSPs. Captures go on.
func (o *observers) trace(g *generation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tracer = g.tracer
	for _, s := range g.ssps {
		o.setLocked(s)
	}
}

// capture begins a capture of s, and reports whether there was no other.
func (o *observers) capture(s *ssp.SSP, f ssp.Observer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.captures[s.Name()] != nil {
		return false
	}
	if o.captures == nil {
		o.captures = make(map[string]ssp.Observer)
	}
	o.captures[s.Name()] = f
	o.setLocked(s)
	return true
}

// release ends the capture of an SSP, which may be several by now: it was taken
// out of the configuration, and came again.
func (o *observers) release(name string, ssps ...*ssp.SSP) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.captures, name)
	for _, s := range ssps {
		if s != nil {
			o.setLocked(s)
		}
	}
}

func (o *observers) setLocked(s *ssp.SSP) {
	captured := o.captures[s.Name()]
	if o.tracer == nil {
		s.Observe(captured)
		return
	}
	traced := traced(o.tracer, s.Name())
	if captured == nil {
		s.Observe(traced)
		return
	}
	s.Observe(func(s *ssp.SSP, r *ssp.Request, ex *upstream.Exchange, out upstream.Outcome, err *upstream.Error) {
		traced(s, r, ex, out, err)
		captured(s, r, ex, out, err)
	})
}
