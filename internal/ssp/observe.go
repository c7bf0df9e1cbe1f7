package ssp

import "adbuffer/internal/upstream"

// Observer is called for each finished request to s, with its settings during the request. It runs
// on the request's goroutine, so it must be quick, and keep only copies of r and ex. err is nil if
// ex has a response. A hedged request's ex.Request is empty.
type Observer func(s *SSP, r *Request, ex *upstream.Exchange, o upstream.Outcome, err *upstream.Error)

// Observe sets the Observer of all later requests. nil, the default, means none and costs a request
// one atomic load.
func (s *SSP) Observe(f Observer) {
	if f == nil {
		s.observer.Store(nil)
		return
	}
	s.observer.Store(&f)
}
