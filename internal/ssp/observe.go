package ssp

import "adbuffer/internal/upstream"

// Observer is told of a request to s that ended, s being as it was for the request, on the request's own goroutine,
// while ex is still the request's: it must be quick, and keep nothing of r and
// ex but copies. err is nil where ex has an answer. A hedged request's
// ex.Request is empty.
type Observer func(s *SSP, r *Request, ex *upstream.Exchange, o upstream.Outcome, err *upstream.Error)

// Observe sets who is told of every request from now on, nil for nobody, which
// is so at first and costs a request one atomic load.
func (s *SSP) Observe(f Observer) {
	if f == nil {
		s.observer.Store(nil)
		return
	}
	s.observer.Store(&f)
}
