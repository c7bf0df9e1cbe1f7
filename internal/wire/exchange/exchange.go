package exchange

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/machine/rates"
)

// Method is a request method that adbuffer forwards.
type Method uint8

// The methods that adbuffer forwards.
const (
	GET Method = iota
	HEAD
	POST
)

var methodNames = [...]string{GET: "GET", HEAD: "HEAD", POST: "POST"}

// String returns the method as sent in a request.
func (m Method) String() string { return methodNames[m] }

// Idempotent reports whether the method may be sent twice. RFC 9110, section
// 9.2.2.
func (m Method) Idempotent() bool { return m != POST }

// Request is one request to an SSP, without the parts that differ by protocol: framing and the
// encoding of fields. A connection reads it only during Do and never changes it.
type Request struct {
	Method Method
	// Scheme is "http" or "https".
	Scheme string
	// Authority is the Host field, or :authority: host[:port].
	Authority []byte
	// Target is the origin-form request target: path and query.
	Target []byte
	// Fields are the end-to-end header fields as HTTP/1.1 lines. CRLF ends each line, and no empty
	// line follows. Fields holds no Host, no Content-Length, no hop-by-hop field and no malformed
	// line: the code that builds Fields ensures that.
	Fields []byte
	// Body is the whole body; empty means no body.
	Body []byte
}

// LargeHead is the size of a head above which many servers refuse a request. They should accept a smaller one: RFC
// 9112, section 3, recommends support for request lines of at least 8000 bytes.
const LargeHead = 8 << 10

// HeadBytes returns the total size of the target, the authority and the fields. No single field is larger than that.
func (q *Request) HeadBytes() int { return len(q.Target) + len(q.Authority) + len(q.Fields) }

// RefusedForSize reports whether the response refuses the request because of its size, as its status says. nginx refuses
// a large head with 400.
func (ex *Exchange) RefusedForSize() bool {
	switch ex.Response.Status {
	case 413, 414, 431:
		return true
	}
	return ex.Response.Status == 400 && ex.Request.HeadBytes() > LargeHead
}

// Response is an SSP's final response (never 1xx), of any protocol.
type Response struct {
	// Status is 200 to 599.
	Status int
	// Fields are the header fields as received, in their order and spelling, without HTTP/2's
	// pseudo-fields and without trailers. They are HTTP/1.1 lines "Name: value", each ended by
	// CRLF, with no empty line at the end. They still include hop-by-hop fields.
	//
	// The connection has checked each line: the name is a token, the value has no CR, LF or NUL,
	// and no line is folded.
	Fields []byte
	// ContentLength is the Content-Length that the SSP stated, or -1. It differs from len(Body)
	// only for responses without a body by definition: to HEAD, and 304.
	ContentLength int
	// Body is complete and has no transfer coding; it may have a Content-Encoding.
	Body []byte
	// Trailers are the trailer's lines, in the form of Fields. Only HTTP/2 connections keep them.
	Trailers []byte
}

// Reset empties the response and keeps its memory.
func (r *Response) Reset() {
	r.Status, r.ContentLength = 0, -1
	r.Fields, r.Body, r.Trailers = r.Fields[:0], r.Body[:0], r.Trailers[:0]
}

// Times are the moments of an exchange. A zero time means that the exchange did not reach this
// point.
type Times struct {
	Queued    time.Time // the attempt asked the pool for a place; after the call of package ssp: the call began
	Acquired  time.Time // the request acquired its place
	FirstByte time.Time // the first byte of the response was read
	Done      time.Time // the complete response was read, or the exchange failed
	// DNS, TCP and TLS are the parts of a dial for this exchange, between Queued and Acquired. They
	// are zero if the connection existed before.
	DNS, TCP, TLS time.Duration
}

// Keyer computes the fairness key of a request.
type Keyer interface {
	// FairKey returns a hash of the key. It may read the whole request.
	FairKey() uint64
}

// Ticket is what a pool gives with a place, and gets back when the place is free again: after Do, or later if a
// connection still reads an abandoned response. Only the pool knows its meaning.
type Ticket uint8

// Exchange is one attempt: a request, what its caller wants, and what it got, with memory for the response.
//
// The caller owns it from AcquireExchange to Release. A connection reads and writes it only during
// Do.
type Exchange struct {
	Wanted
	// Request is what the connection sends. The caller builds it before Do, for the place that the pool gave.
	Request Request
	Got

	// The following fields belong to the call, and stay from one attempt to the next.

	// FairKey caches the result of Keyer; 0 means that Keyer has not been asked. Package pool writes it.
	FairKey uint64
	// LostAfter is set if an earlier attempt ended because the SSP closed its reused connection: the idle
	// time of the connection, at least 1 ns. Package pool writes and reads it.
	LostAfter time.Duration
	// Attempts is how often the request was sent to the SSP. Package ssp writes it when the call ends.
	Attempts int

	// Block is scratch memory of the caller for the slices of Request; it is kept between uses.
	// Connections do not use it.
	Block []byte

	done     chan error // see Done
	reserved int64      // bytes taken from Share and Budget for Response.Body
	acquired bool       // from AcquireExchange to Release
}

// Wanted is what the caller wants of an exchange. The caller sets it before it asks the pool for a place. Pools
// and connections do not change it.
type Wanted struct {
	// Deadline ends the exchange at any point. It is never zero.
	Deadline time.Time
	// UsualTimeout is how long the SSP usually has for a response, from Times.Acquired on. If the exchange
	// is abandoned earlier, its response is not overdue yet. 0 means that the response of an abandoned
	// exchange is overdue at once.
	UsualTimeout time.Duration
	// Span measures lag since the call of package ssp began, over all attempts of the call.
	Span lag.Span
	// Alone says that no other exchange may be outstanding on the pipelined connection of this exchange. The
	// pool ensures it. The field has no effect on other connections.
	Alone bool
	// Isolated says that no other exchange may be outstanding on the connection, since the SSP may end the
	// connection because of this request. The pool ensures it for all protocols.
	Isolated bool
	// Redials is how many failed dials the exchange may survive while it waits for a place.
	Redials int
	// Resent says that the request was sent before, and that the SSP provably did not process it.
	// The request waits in front of other requests, until its deadline.
	Resent bool
	// Avoid is the endpoint of an earlier attempt, or "". The pool prefers a place at another active
	// endpoint, also if the request must wait for a place.
	Avoid string
	// Refused says that the endpoint Avoid refused the request. While another active endpoint can be dialled in
	// time, the request waits for that dial rather than go to Avoid again.
	Refused bool
	// OverHTTP1 says that the SSP wants the request over HTTP/1. The request gets only an HTTP/1 place.
	OverHTTP1 bool
	// Client is the group of the client that sent the request.
	Client rates.Group
	// Keyer computes the request's key for fair queueing, which says whose share of the places the request uses
	// while requests wait for places. Nil means that the request has no key.
	Keyer Keyer
	// Context, if not nil, ends the exchange early (ErrCancelled). It has no deadline of its own.
	// For a request to a single SSP it is the client's Cancel.
	Context context.Context
	// Budget bounds the bodies of all requests and responses, Share those of this SSP's requests and
	// responses. Response.Body counts in both. Nil means no bound. Neither may change while
	// Response.Body is not empty.
	Budget, Share *Budget
}

// Got is what an exchange got. The pool writes Endpoint, Peer, Redialed and Ticket when it gives the exchange a place,
// and the connection writes the fields from Protocol on during Do. Of Times, the pool writes Acquired and the parts of
// a dial, and the connection FirstByte and Done. Package ssp writes Queued, and Done if no connection has written it;
// the pool writes Queued if it is zero.
type Got struct {
	// Endpoint and Peer are the destination of the connection: the endpoint's host:port in the
	// configuration, and its IP address.
	Endpoint string
	Peer     netip.AddrPort
	// Redialed is how many failed dials the exchange survived, at most Redials. The pool writes it also if the
	// exchange got no place.
	Redialed int
	// Ticket belongs to the place. The connection returns it to its Owner.
	Ticket Ticket

	Times Times

	// Protocol is the connection's protocol.
	Protocol Protocol
	// Reused says that the connection had carried an earlier request.
	Reused bool
	// Served is the number of responses per request on a reused HTTP/1 connection: the responses that it has
	// carried, divided by the requests that are outstanding on it, including this one. Over HTTP/2 it is known after a
	// GOAWAY without an error: the requests up to the last one that the SSP processes, divided by the
	// later ones. Package ssp lets these responses pay for a retry.
	Served int
	// Response is valid after Do returned nil. Connections append to its slices, which are empty at
	// first and keep their memory between uses.
	Response Response
}

var exchanges = sync.Pool{New: func() any {
	return &Exchange{Got: Got{Response: Response{ContentLength: -1}}, done: make(chan error, 1)}
}}

// AcquireExchange returns an empty exchange. The caller releases it once.
func AcquireExchange() *Exchange {
	ex := exchanges.Get().(*Exchange)
	ex.acquired = true
	return ex
}

// MaxKeptBuffer is the largest buffer that is kept for the next request. A larger buffer is freed,
// so that one huge request or response does not occupy memory forever.
const MaxKeptBuffer = 64 << 10

// Release returns the exchange for reuse. The caller must not use any part of it afterwards.
func (ex *Exchange) Release() {
	if !ex.acquired {
		panic("BUG: exchange released twice")
	}
	ex.ReleaseBody()
	select {
	case <-ex.done: //nolint:errcheck // completed after its caller had abandoned it
	default:
	}
	r := &ex.Response
	for _, b := range [...]*[]byte{&ex.Block, &r.Body, &r.Fields, &r.Trailers} {
		if cap(*b) > MaxKeptBuffer {
			*b = nil
		}
	}
	r.Reset()
	res, block, done := *r, ex.Block, ex.done
	*ex = Exchange{} // a literal with the kept fields would be built as a temporary value and then copied
	ex.Response, ex.Block, ex.done = res, block, done
	exchanges.Put(ex)
}

// Complete sends err, or nil, to the receiver of Done. A connection whose responses are read by
// another goroutine calls it at most once per Do. It never blocks.
func (ex *Exchange) Complete(err error) { ex.done <- err }

// Done returns the channel on which Complete sends its result. One receive takes it.
func (ex *Exchange) Done() <-chan error { return ex.done }

// TakeResponse moves the response of from to ex, with its times, its protocol and its bytes in the
// shared Budget and Share. Do must have returned nil on from, and no Do may be running on ex. from
// gets ex's memory.
func (ex *Exchange) TakeResponse(from *Exchange) {
	ex.Response, from.Response = from.Response, ex.Response
	ex.reserved, from.reserved = from.reserved, ex.reserved
	ex.TakeTimes(from)
}

// TakeTimes copies the times of from to ex, and what from knows about its connection.
func (ex *Exchange) TakeTimes(from *Exchange) {
	ex.Times, ex.Reused, ex.Served, ex.Protocol = from.Times, from.Reused, from.Served, from.Protocol
	ex.Endpoint, ex.Peer = from.Endpoint, from.Peer
}

// Summary holds the values of an exchange for logs and spans. It holds no memory of the exchange.
type Summary struct {
	Status   int // of the response; 0 = no response
	Attempts int
	Protocol Protocol
	Reused   bool
	Endpoint string
	Peer     netip.AddrPort
	Times    Times
}

// Summary returns the summary of ex. No Do may be running on ex.
func (ex *Exchange) Summary() Summary {
	return Summary{
		Status: ex.Response.Status, Attempts: ex.Attempts, Protocol: ex.Protocol, Reused: ex.Reused,
		Endpoint: ex.Endpoint, Peer: ex.Peer, Times: ex.Times,
	}
}
