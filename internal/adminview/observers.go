package adminview

import (
	"sync"

	"adbuffer/internal/reload"
	"adbuffer/internal/ssp"
)

// observers makes the running captures observers of their SSPs. An SSP without a capture
// has no observer, which costs requests nothing. An SSP and its successors share their
// observer.
type observers struct {
	mu       sync.Mutex
	captures map[string]ssp.Observer // by SSP
}

// follow moves running captures to the SSPs of a new version.
func (o *observers) follow(v *reload.Version) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range v.SSPs {
		o.setLocked(s)
	}
}

// capture begins a capture of s. It returns false if another one runs.
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

// release ends the capture of that name. ssps are all SSPs that it observed: a reload may have
// removed the SSP, and a later reload may have added it again.
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

func (o *observers) setLocked(s *ssp.SSP) { s.Observe(o.captures[s.Name()]) }
