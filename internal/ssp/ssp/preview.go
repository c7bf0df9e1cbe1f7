package ssp

import (
	"time"

	"adbuffer/internal/wire/exchange"
)

// Limit returns the time that a call that begins at r.Received has, and the field or setting that this time
// follows from. timeout is the call's own limit, 0 for none.
func (s *SSP) Limit(r *Request, timeout time.Duration) (limit time.Duration, from string) {
	_, limit, from = s.deadline(r, r.Received, timeout)
	return limit, from
}

// Preview returns r as adbuffer would send it now, with timeout as the call's own limit, on a connection to an
// endpoint with this host. It uses the code that sends. The result is a copy, whose bytes Preview appends to memory. Times
// for rewrite_tmax are computed from r.Received.
func (s *SSP) Preview(r *Request, host string, timeout time.Duration, memory []byte) (q exchange.Request, appended []byte, err *exchange.Error) {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	ex.Deadline, _, _ = s.deadline(r, r.Received, timeout)
	ex.Times.Acquired = r.Received
	c := call{start: r.Received}
	defer s.releaseCopyBytes(r, &c.body)
	if err := s.makeBody(r, ex, &c.body); err != nil {
		return exchange.Request{}, memory, err
	}
	s.write(r, ex, &c, previewPlace{host: host, protocol: s.pool.Options().Protocol})
	q = ex.Request
	for _, b := range []*[]byte{&q.Authority, &q.Target, &q.Fields, &q.Body} {
		start := len(memory)
		memory = append(memory, *b...)
		*b = memory[start:len(memory):len(memory)]
	}
	return q, memory, nil
}

// previewPlace stands for a place on a connection, of which write needs only the host and the protocol. The embedded
// interface is nil: its other methods are not called. The protocol is Unknown if the SSP's protocol is negotiated.
type previewPlace struct {
	place
	host     string
	protocol exchange.Protocol
}

func (p previewPlace) Host() string { return p.host }

func (p previewPlace) Protocol() exchange.Protocol { return p.protocol }
