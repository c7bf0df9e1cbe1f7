package upstream

import "errors"

// Progress says how far a failed exchange had come. It decides whether the
// request may be sent again.
type Progress uint8

const (
	// NotSent: no byte of the request reached the SSP (DNS, dial, TLS, a queue,
	// a write of zero bytes). Any method may be sent again.
	NotSent Progress = iota
	// NotProcessed: bytes were sent, and the peer has said that it did not and
	// will not act on them (REFUSED_STREAM, a stream id above GOAWAY's, behind
	// an explicit Connection: close). Any method may be sent again. RFC 9113, section 8.7.
	NotProcessed
	// MaybeProcessed: the SSP may have acted on the request.
	MaybeProcessed
)

// Error is a failed exchange, or a place that could not be had.
type Error struct {
	Outcome  Outcome
	Progress Progress
	// Stale: a reused HTTP/1 connection closed before the first byte of an
	// answer, the keep-alive race. What is done about it is `retry.stale`.
	Stale bool
	// Demote: the peer breaks HTTP/2 (protocol errors): where that happens
	// repeatedly, the pool should speak HTTP/1 to it for a while.
	Demote bool
	// RefusesHTTP2: the peer has said that it wants HTTP/1 (421,
	// HTTP_1_1_REQUIRED, INADEQUATE_SECURITY): the pool should speak that to it
	// for a while, from now on.
	RefusesHTTP2 bool
	// OverHTTP1: the peer refused to act on the request over HTTP/2, and began no
	// response (HTTP_1_1_REQUIRED, 421). Whatever Progress says, the request may
	// be sent again, with any method, over HTTP/1 and only over HTTP/1.
	OverHTTP1 bool
	// Detail is for people: the limit that was met, with its value, and the
	// setting to change. Never bytes of a request or an answer.
	Detail string
	// Err is the cause, or nil.
	Err error
}

// Error returns "outcome: detail: cause", without the parts that are empty.
func (e *Error) Error() string {
	s := e.Outcome.String()
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// AsError returns err as an *Error; anything else becomes Internal, since
// connections and pools return nothing but *Error.
func AsError(err error) *Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // the usual case; errors.As would allocate
		return e
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Outcome: Internal, Progress: MaybeProcessed, Err: err}
}

// ErrALPN is the cause of a TLSFailed where the handshake went well, but the
// peer speaks no protocol that the SSP's `protocol` allows.
var ErrALPN = errors.New("no usable protocol negotiated")

// Errors without a cause of their own, kept so that failing at a high rate
// costs no allocation.
var (
	// ErrDeadline: the deadline passed after the request was sent.
	ErrDeadline = &Error{Outcome: Deadline, Progress: MaybeProcessed, Detail: "the SSP did not answer in time; see deadline and timeouts.request"}
	// ErrDeadlineNotSent: the deadline passed before anything was sent.
	ErrDeadlineNotSent = &Error{Outcome: Deadline, Progress: NotSent, Detail: "the deadline passed before the request could be sent; see deadline and pool.max_conns"}
	// ErrCancelled: the exchange's context ended, since another leg answered.
	ErrCancelled = &Error{Outcome: Cancelled, Progress: MaybeProcessed}
)
