package http2

import (
	"fmt"

	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// badAnswer is the error of an exchange whose answer breaks a rule. demote:
// the rule is one of HTTP/2.
func badResponse(text string, demote bool) *upstream.Error {
	return &upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.MaybeProcessed, Demote: demote, Detail: text}
}

// resetByPeer is the error of an exchange whose stream the peer reset with
// code before the response was whole. responding: HEADERS of the response have
// come.
//
// REFUSED_STREAM says that nothing was processed: RFC 9113, section 8.7. A peer
// that has sent HEADERS, and be it an interim response, has begun to process the
// request: its REFUSED_STREAM contradicts that, and proves nothing.
//
// HTTP_1_1_REQUIRED is no such proof by itself: section 8.7 does not name it. It
// asks for the same request over HTTP/1 (section 7), and the request may be
// repeated in that way alone.
func resetByPeer(code h2.ErrCode, responding bool) *upstream.Error {
	e := &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed}
	switch {
	case responding:
	case code == h2.ErrCodeRefusedStream:
		e.Progress = upstream.NotProcessed
	case code == h2.ErrCodeHTTP11Required:
		e.OverHTTP1 = true
	}
	e.Demote, e.RefusesHTTP2 = classify(code)
	e.Detail = "the SSP reset the HTTP/2 stream: " + code.String()
	return e
}

// breach says what a peer that closes a connection or a stream with code thinks
// of HTTP/2: that we break it, so that we do not get on with it over HTTP/2, or
// that it wants HTTP/1.
func classify(code h2.ErrCode) (demote, refuses bool) {
	switch code {
	case h2.ErrCodeProtocol, h2.ErrCodeFlowControl, h2.ErrCodeFrameSize, h2.ErrCodeCompression:
		return true, false
	case h2.ErrCodeInadequateSecurity, h2.ErrCodeHTTP11Required:
		return false, true
	}
	return false, false
}

// tooManyFields is the error of an exchange whose response has more fields.
func tooManyFields(limit int) *upstream.Error {
	return badResponse(fmt.Sprintf("the response has over %d fields; see max_response_fields", limit), false)
}

// Errors that carry nothing of their own, made once.
var (
	errClosed = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotSent,
		Detail: "the HTTP/2 connection was closed before the request was sent"}
	errDraining = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotProcessed,
		Detail: "the SSP closes the HTTP/2 connection and takes no more requests on it"}
	errNoStream = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotProcessed,
		Detail: "the SSP has lowered the number of HTTP/2 streams that it takes at once"}
	errNotProcessed = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.NotProcessed,
		Detail: "the SSP closed the HTTP/2 connection without looking at the request"}
	errMisdirected = &upstream.Error{Outcome: upstream.BadResponse, Progress: upstream.NotProcessed, RefusesHTTP2: true, OverHTTP1: true,
		Detail: "the SSP does not serve this host on this HTTP/2 connection: 421 Misdirected Request"}
	errContradicted = &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed,
		Detail: "the SSP closed the HTTP/2 connection in the middle of its response"}
	errBodyTooLarge = &upstream.Error{Outcome: upstream.ResponseTooLarge, Progress: upstream.MaybeProcessed,
		Detail: "the body of the answer is too large; see max_response_bytes"}
	errHeaderTooLarge = &upstream.Error{Outcome: upstream.ResponseTooLarge, Progress: upstream.MaybeProcessed,
		Detail: "the header list of the answer is too large; see max_response_header_bytes"}
	errRequestHeader = &upstream.Error{Outcome: upstream.Internal, Progress: upstream.NotSent,
		Detail: "the request's head is malformed"}
	errRequestHeaderTooLarge = &upstream.Error{Outcome: upstream.TooLarge, Progress: upstream.NotSent,
		Detail: "the request's header list is larger than the SSP takes (its SETTINGS_MAX_HEADER_LIST_SIZE)"}
)
