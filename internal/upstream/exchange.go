package upstream

import (
	"context"
	"sync"
	"time"
)

// Method is a request method that adbuffer forwards.
type Method uint8

// The methods, and no others.
const (
	GET Method = iota
	HEAD
	POST
)

var methodNames = [...]string{GET: "GET", HEAD: "HEAD", POST: "POST"}

// String returns the method as it stands on the wire.
func (m Method) String() string { return methodNames[m] }

// Idempotent reports whether the method may be sent twice. RFC 9110, section
// 9.2.2.
func (m Method) Idempotent() bool { return m != POST }

// Request is one request as it leaves for an SSP, without what differs by
// protocol: framing and the way fields are written. A connection reads it only
// during Do, and never changes it.
type Request struct {
	Method Method
	// Scheme is "http" or "https".
	Scheme string
	// Authority is the Host field, or :authority: host[:port].
	Authority []byte
	// Target is the origin-form request target: path and query.
	Target []byte
	// Fields are the end-to-end header fields as HTTP/1.1 lines, each ended by
	// CRLF, without an empty line at the end. There is no Host, no
	// Content-Length and nothing hop-by-hop among them, and no line is
	// malformed: whoever builds Fields answers for that.
	Fields []byte
	// Body is the whole body; empty means no body.
	Body []byte
}

// Response is an SSP's final answer (never 1xx), whatever protocol brought it.
type Response struct {
	// Status is 200 to 599.
	Status int
	// Fields are the header fields as they came, in their order and spelling,
	// as HTTP/1.1 lines, each "Name: value" ended by CRLF, without an empty
	// line at the end; HTTP/2's pseudo-fields are not among them. The
	// connection has checked every line: the name is a token, the value has no
	// CR, LF or NUL, and nothing is folded. Hop-by-hop fields are still there.
	// Trailers are not.
	Fields []byte
	// ContentLength is the Content-Length that the SSP stated, -1 for none. It
	// differs from len(Body) only in answers that have no body by rule: to
	// HEAD, and 304.
	ContentLength int
	// Body is whole and unframed: no transfer coding is left; a
	// Content-Encoding is.
	Body []byte
}

// Reset empties the answer and keeps its memory.
func (a *Response) Reset() {
	a.Status, a.ContentLength = 0, -1
	a.Fields, a.Body = a.Fields[:0], a.Body[:0]
}

// Times are the moments of an exchange. The zero time means that it did not
// come so far.
type Times struct {
	Queued    time.Time // entered the pool's queue, or asked for a place
	Acquired      time.Time // was given its place
	FirstByte time.Time // the first byte of the answer was read
	Done      time.Time // the answer was read whole, or the exchange failed
	// What of Queued to Lent was a dial made for this exchange. Zero for a
	// connection that was there before.
	DNS, TCP, TLS time.Duration
}

// Exchange is one attempt: a request, its deadline, and room for the answer.
//
// The caller holds it from AcquireExchange to Release. A connection reads and
// writes it only during Do.
type Exchange struct {
	// Set by the caller before Do.

	Request Request
	// Deadline ends the exchange, wherever it is. Never zero.
	Deadline time.Time
	// Alone: on a connection that answers in order (HTTP1Pipelined) nothing may
	// be outstanding before or behind the exchange. Pools see to it; nothing
	// changes on other connections.
	Alone bool
	// Redials is how many failed dials the exchange may outlast while it waits for
	// a place. Acquire takes off those that it outlasted.
	Redials int
	// Resent: the request was sent before, and provably not processed. It waits
	// in front of other requests, until its deadline.
	Resent bool
	// Context, where not nil, ends the exchange early (ErrCancelled). It has no
	// deadline of its own. Nil on the single path.
	Context context.Context
	// Budget bounds the bodies of all requests and responses, and Share those of
	// the SSP's responses; Answer.Body is part of both. Nil means no bound.
	// Neither may change while Answer.Body is not empty.
	Budget, Share *Budget

	// Written by Do.

	// Response is valid once Do returned nil. Connections append to its slices,
	// which are empty at first and keep their memory between uses.
	Response Response
	Times  Times
	// Reused: the connection had carried a request before.
	Reused bool
	// Protocol is what the connection spoke.
	Protocol Protocol

	// Block is scratch memory of the caller for Request's slices; it is kept
	// between uses. Connections leave it alone.
	Block []byte

	done     chan error // see Done
	reserved int64      // bytes taken from Share and Budget for Answer.Body
	acquired bool       // from AcquireExchange to Release
}

var exchanges = sync.Pool{New: func() any {
	return &Exchange{Response: Response{ContentLength: -1}, done: make(chan error, 1)}
}}

// AcquireExchange returns an empty exchange. The caller releases it once.
func AcquireExchange() *Exchange {
	ex := exchanges.Get().(*Exchange)
	ex.acquired = true
	return ex
}

// maxKeptBytes is the largest buffer that an exchange keeps for its next use,
// so that one huge answer does not stay in memory for ever.
const maxKeptBytes = 64 << 10

// Release gives the exchange back. Nothing of it may be used afterwards.
func (ex *Exchange) Release() {
	if !ex.acquired {
		panic("BUG: exchange released twice")
	}
	ex.acquired = false
	ex.ReleaseBody()
	select {
	case <-ex.done: //nolint:errcheck // completed after its caller had left
	default:
	}
	ex.Request = Request{}
	ex.Deadline, ex.Context, ex.Budget, ex.Share = time.Time{}, nil, nil, nil
	ex.Times = Times{}
	ex.Alone, ex.Redials, ex.Resent, ex.Reused, ex.Protocol = false, 0, false, false, Unknown
	if cap(ex.Block) > maxKeptBytes {
		ex.Block = nil
	}
	if cap(ex.Response.Body) > maxKeptBytes {
		ex.Response.Body = nil
	}
	ex.Response.Reset()
	exchanges.Put(ex)
}

// Complete puts err, or nil, where Done's receiver finds it. Connections whose
// answers are read by another goroutine call it at most once per Do; it never
// blocks.
func (ex *Exchange) Complete(err error) { ex.done <- err }

// Done returns where Finish puts how the exchange ended. One receive takes it.
func (ex *Exchange) Done() <-chan error { return ex.done }

// TakeResponse moves the answer of from, on which Do has returned nil, to ex, on
// which no Do is under way: with its times, what brought it, and what it holds
// of the Budget and the Share that both have. from is left with ex's memory.
func (ex *Exchange) TakeResponse(from *Exchange) {
	ex.Response, from.Response = from.Response, ex.Response
	ex.reserved, from.reserved = from.reserved, ex.reserved
	ex.Times, ex.Reused, ex.Protocol = from.Times, from.Reused, from.Protocol
}
