package http2

import (
	"adbuffer/internal/wire/exchange"

	h2 "golang.org/x/net/http2"
)

// badResponse is the error of an exchange whose response violates a rule. demote says that the rule is a rule of
// HTTP/2, not of every HTTP version.
func badResponse(text string, demote bool) *exchange.Error {
	return &exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.MaybeProcessed, Demote: demote, Detail: text}
}

// resetByPeer is the error of an exchange whose stream the peer reset with code before the response
// was complete. responding says that HEADERS of the response have arrived.
//
// REFUSED_STREAM states that the peer processed nothing: RFC 9113, section 8.7. But a peer that has sent HEADERS,
// even of an interim response, has begun to process the request, so its REFUSED_STREAM proves nothing.
//
// HTTP_1_1_REQUIRED is not named in section 8.7, so it does not prove that nothing was processed. It asks for the
// same request over HTTP/1 (section 7), so the request may be repeated over HTTP/1 only.
func resetByPeer(code h2.ErrCode, responding bool) *exchange.Error {
	e := &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed}
	switch {
	case responding:
	case code == h2.ErrCodeRefusedStream:
		e.Progress = exchange.NotProcessed
	case code == h2.ErrCodeHTTP11Required:
		e.OverHTTP1 = true
	}
	e.Demote, e.RefusesHTTP2 = classify(code)
	e.Detail = "the SSP reset the HTTP/2 stream: " + code.String()
	return e
}

// classify reports the meaning of a GOAWAY's or RST_STREAM's error code for HTTP/2. demote says
// that the peer reports a violation by adbuffer, so HTTP/2 does not work between them. refuses says
// that the peer wants HTTP/1.
func classify(code h2.ErrCode) (demote, refuses bool) {
	switch code {
	case h2.ErrCodeProtocol, h2.ErrCodeFlowControl, h2.ErrCodeFrameSize, h2.ErrCodeCompression:
		return true, false
	case h2.ErrCodeInadequateSecurity, h2.ErrCodeHTTP11Required:
		return false, true
	}
	return false, false
}

// Errors without their own cause are allocated once.
var (
	errClosed    = exchange.Errorf(exchange.ConnLost, exchange.NotSent, "the HTTP/2 connection was closed before the request was sent")
	errClosedToo = errClosed.AsCollateral()
	errDraining  = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Unsent: true, Collateral: true,
		Detail: "the SSP closes the HTTP/2 connection and takes no more requests on it"}
	errNoStream = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Unsent: true,
		Detail: "the SSP has lowered its limit of HTTP/2 streams"}
	errNotProcessed = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Isolate: exchange.IsolateLast,
		Detail: "the SSP closed the HTTP/2 connection without processing the request"}
	errNotProcessedToo = errNotProcessed.AsCollateral()
	// errLargeHead is the error of a request that must not share the connection. Some servers end the whole
	// connection because of a field that exceeds their limit, which they do not state.
	errLargeHead = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotSent, Isolate: exchange.IsolateNext, Collateral: true,
		Detail: "the request's header is over 8 KiB, and the SSP states no SETTINGS_MAX_HEADER_LIST_SIZE"}
	errMisdirected = &exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.NotProcessed, RefusesHTTP2: true, OverHTTP1: true,
		Detail: "the SSP does not serve this host on this HTTP/2 connection: 421 Misdirected Request"}
	errContradicted = exchange.Errorf(exchange.ConnLost, exchange.MaybeProcessed,
		"the SSP closed the HTTP/2 connection in the middle of its response")
	errUnwrittenFull = exchange.Errorf(exchange.Overloaded, exchange.NotSent,
		"1 MB of requests wait to be written on one HTTP/2 connection: the SSP does not read them; see pool.max_streams_per_conn")
	errRequestHeader = exchange.Errorf(exchange.Internal, exchange.NotSent, "the request's header is malformed")
)

// largeHeadRefused is the error of an isolated request with a header over exchange.LargeHead that the peer
// refused with code. The client is to blame: the SSP need not accept such a header.
func largeHeadRefused(r *exchange.Request, did string, code h2.ErrCode) *exchange.Error {
	return exchange.Errorf(exchange.TooLarge, exchange.MaybeProcessed,
		"the SSP %s (%v), on which the request was alone; the request's header has %d bytes, and SSPs need not accept more than %d",
		did, code, r.HeadBytes(), exchange.LargeHead)
}

// headerListTooLarge is the error of a request whose header list is over the SSP's
// SETTINGS_MAX_HEADER_LIST_SIZE. The limit is advisory (RFC 9113, section 6.5.2), but the SSP would
// refuse the request, so it is not sent. If the request is ordinary, the SSP is to blame, as for a
// violation; otherwise the client is.
func headerListTooLarge(size uint64, limit uint32) *exchange.Error {
	o := exchange.BadResponse
	if size > exchange.LargeHead {
		o = exchange.TooLarge
	}
	return exchange.Errorf(o, exchange.NotSent,
		"the request's header list has %d bytes, over the SSP's SETTINGS_MAX_HEADER_LIST_SIZE of %d; the SSP must raise it, or see ssps[].protocol", size, limit)
}
