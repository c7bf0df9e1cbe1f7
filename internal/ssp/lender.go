package ssp

import (
	"adbuffer/internal/pool"
	"adbuffer/internal/upstream"
)

// lender is the part of a pool that an SSP uses.
type lender interface {
	// Acquire acquires a place for ex, and waits for one until ex.Deadline at the latest. Its
	// errors are *upstream.Error with Progress NotSent. It sets ex.Times.Acquired.
	Acquire(ex *upstream.Exchange) (place, error)
	// Refusing reports whether an operator has drained or disabled the SSP.
	Refusing() bool
}

// place is one place on a connection. Exactly one of Do and Release must be
// called, once.
type place interface {
	Do(ex *upstream.Exchange) error
	Release()
	Protocol() upstream.Protocol
	Host() string
	// Ended records, after Do, how the attempt ended and its result for the endpoint.
	Ended(o upstream.Outcome, v pool.Result, t *upstream.Times)
}

// poolLender makes a pool.Pool a lender. A pool.Place is one pointer, so an interface holds it
// without an allocation.
type poolLender struct{ pool *pool.Pool }

func (l poolLender) Acquire(ex *upstream.Exchange) (place, error) { return l.pool.Acquire(ex) }

func (l poolLender) Refusing() bool { return l.pool.Refusing() }

// Preview returns r as adbuffer would send it now on a connection to an endpoint with this host. It
// uses the code that sends. The result is a copy. Times for rewrite_tmax are computed from
// r.Received.
func (s *SSP) Preview(r *Request, host string) (upstream.Request, *upstream.Error) {
	ex := upstream.AcquireExchange()
	defer ex.Release()
	ex.Deadline = s.deadline(r, r.Received, 0)
	ex.Times.Acquired = r.Received
	l := leg{start: r.Received}
	defer l.body.release(r.Budget)
	if err := s.makeBody(r, ex, &l.body); err != nil {
		return upstream.Request{}, err
	}
	s.write(r, ex, &l, previewPlace{host: host, protocol: s.pool.Options().Protocol})
	q := ex.Request
	for _, b := range []*[]byte{&q.Authority, &q.Target, &q.Fields, &q.Body} {
		*b = append([]byte(nil), *b...)
	}
	return q, nil
}

// previewPlace is a place without a connection. While the protocol of an SSP is negotiated, it is
// unknown.
type previewPlace struct {
	place
	host     string
	protocol upstream.Protocol
}

func (p previewPlace) Host() string                { return p.host }
func (p previewPlace) Protocol() upstream.Protocol { return p.protocol }
