package adminview

import (
	"sync"

	"adbuffer/internal/reload"
	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
	"adbuffer/internal/upstream"
)

// observers makes one observer of each SSP, from the tracer and the running captures. An
// SSP without either has no observer, which costs requests nothing. An SSP and its
// successors share their observer.
type observers struct {
	mu       sync.Mutex
	tracer   *tracing.Tracer         // nil without tracing
	captures map[string]ssp.Observer // by SSP
}

func (o *observers) trace(v *reload.Version) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tracer = v.Tracer
	for _, s := range v.SSPs {
		o.setLocked(s)
	}
}

// capture begins a capture of s. It reports false if another one runs.
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

// release ends the capture of the name. The SSPs are all that it observed: a reload may
// have removed the SSP, and a later reload may have added it again.
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
		s.TraceWith(nil)
	} else {
		s.TraceWith(begins(o.tracer))
	}
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
