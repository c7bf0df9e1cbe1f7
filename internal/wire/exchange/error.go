package exchange

import (
	"errors"
	"fmt"
	"time"
)

// Progress says how far a failed exchange got. It decides whether the request may be sent again.
type Progress uint8

const (
	// NotSent means that no byte of the request reached the SSP (DNS, dial, TLS, the queue, a write
	// of zero bytes). Any method may be sent again.
	NotSent Progress = iota
	// NotProcessed means that bytes were sent, but the SSP stated that it did not and will not act
	// on them. Examples are REFUSED_STREAM, a stream id above that of GOAWAY, and a request after
	// an explicit Connection: close. Any method may be sent again. RFC 9113, section 8.7.
	NotProcessed
	// MaybeProcessed means that the SSP may have acted on the request.
	MaybeProcessed
)

// Isolate says whether a retry must not share its connection with other exchanges.
type Isolate uint8

const (
	// IsolateNever means that a retry may share a connection.
	IsolateNever Isolate = iota
	// IsolateLast means that the SSP ended the connection without processing the request. If it does so
	// again and again, the last retry should not depend on how many requests share the connection.
	IsolateLast
	// IsolateNext means that the SSP may end, or may have ended, the connection because of this request.
	IsolateNext
)

// Error is a failed exchange, or the failure to acquire a place.
type Error struct {
	Outcome  Outcome
	Progress Progress
	// Stale says that a reused HTTP/1 connection closed before the first byte of a response (the
	// keep-alive race). The setting `retry.stale` then decides about a retry.
	Stale bool
	// Unsent says, with NotProcessed, that no byte of the request left adbuffer: the connection stopped
	// taking requests before that. A retry is the first sending.
	Unsent bool
	// Isolate says whether a retry must be Exchange.Isolated.
	Isolate Isolate
	// Collateral says that the exchange failed because its shared connection ended, and that the failure of
	// another exchange stands for that end. The exchange does not count as a failure of the SSP.
	Collateral bool
	// Demote says that the peer violated HTTP/2, or reports a violation. If nothing else comes over
	// HTTP/2, the pool should use HTTP/1 for a while.
	Demote bool
	// RefusesHTTP2 says that the peer asks for HTTP/1 (421, HTTP_1_1_REQUIRED, INADEQUATE_SECURITY).
	// That may hold for one request only, so the pool treats it as Demote.
	RefusesHTTP2 bool
	// OverHTTP1 says that the peer refused to process the request over HTTP/2 and began no response
	// (HTTP_1_1_REQUIRED, 421). For any Progress, a request of any method may be sent again, but
	// only over HTTP/1.
	OverHTTP1 bool
	// Detail explains the error to people: the limit, its value and the setting to change. It never
	// holds bytes of a request or a response.
	Detail string
	// RetryAfter is when another request may succeed, 0 if unknown.
	RetryAfter time.Duration
	// Err is the cause, or nil.
	Err error
}

// Errorf returns an Error whose Detail is formatted as by fmt.Sprintf.
func Errorf(o Outcome, p Progress, detail string, args ...any) *Error {
	return &Error{Outcome: o, Progress: p, Detail: fmt.Sprintf(detail, args...)}
}

// Error returns "outcome: detail: cause" without the empty parts.
func (e *Error) Error() string {
	if text := e.Text(); text != "" {
		return e.Outcome.String() + ": " + text
	}
	return e.Outcome.String()
}

// Text returns Detail and the cause.
func (e *Error) Text() string {
	switch {
	case e.Err == nil:
		return e.Detail
	case e.Detail == "":
		return e.Err.Error()
	default:
		return e.Detail + ": " + e.Err.Error()
	}
}

// BlamesHTTP2 reports whether the peer refuses or violates HTTP/2, so that HTTP/1 may work.
func (e *Error) BlamesHTTP2() bool { return e.Demote || e.RefusesHTTP2 }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// AsCollateral returns a copy of e that is Collateral.
func (e *Error) AsCollateral() *Error {
	c := *e
	c.Collateral = true
	return &c
}

// AsError returns err as an *Error. Connections and pools return only *Error; any other error
// becomes Internal.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Outcome: Internal, Progress: MaybeProcessed, Err: err}
}

// IsTimeout reports whether err is a timeout of the network, of DNS or of TLS.
func IsTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// ErrALPN is the cause of a TLSFailed after a handshake in which the peer offered no protocol that
// the SSP's `protocol` setting allows.
var ErrALPN = errors.New("no usable protocol negotiated")

// BodyTooLarge is the error of a response whose body exceeds its limit.
func BodyTooLarge(limit int) *Error {
	return Errorf(ResponseTooLarge, MaybeProcessed, "the body of the response is over %d bytes; see max_response_bytes", limit)
}

// HeaderTooLarge is the error of a response whose header or trailers exceed their limit.
func HeaderTooLarge(limit int) *Error {
	return Errorf(ResponseTooLarge, MaybeProcessed, "the header or the trailers of the response are over %d bytes; see max_response_header_bytes", limit)
}

// MaxResponseFields bounds the fields of a response's header and trailers together. Each field costs
// memory and time beyond its bytes, and the largest responses of real SSPs have some forty.
const MaxResponseFields = 256

// TooManyFields is the error of a response with more than MaxResponseFields fields.
func TooManyFields() *Error {
	return Errorf(BadResponse, MaybeProcessed, "the response has over %d fields", MaxResponseFields)
}

// Errors without their own cause are allocated once, so that a high error rate allocates nothing.
var (
	// ErrDeadline says that the deadline passed after the request was sent. Package ssp copies it, and
	// ErrDeadlineNotSent, to add the deadline.
	ErrDeadline = &Error{Outcome: Deadline, Progress: MaybeProcessed, Detail: "the SSP did not respond in time"}
	// ErrDeadlineNotSent says that the deadline passed before any byte was sent.
	ErrDeadlineNotSent = &Error{Outcome: Deadline, Progress: NotSent, Detail: "the request could not be sent in time"}
	// ErrCancelled says that the exchange's context ended because another leg responded first.
	ErrCancelled = &Error{Outcome: Cancelled, Progress: MaybeProcessed}
	// ErrOnlyHTTP2 says that a request may be sent again only over HTTP/1, which the SSP does not offer.
	// Callers get the error that caused the retry.
	ErrOnlyHTTP2 = &Error{Outcome: ConnLost, Progress: NotSent}
	// ErrClientGone says that the client closed its connection before the request was sent.
	ErrClientGone = &Error{Outcome: ClientGone, Progress: NotSent}
)
