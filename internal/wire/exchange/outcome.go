package exchange

import "slices"

// Outcome is how a request, or one leg of it, ended. It is a closed set. Its names are the values
// of the metric label `outcome`, the reasons in adbuffer's own error bodies, and the text behind
// `proxy/` in X-Adbuffer-Source.
type Outcome uint8

// The first six classify an SSP's response. All others, except Merged, mean that no usable response came.
const (
	Fill        Outcome = iota // 2xx with a body
	NoBid                      // 204, an empty body, or a document without an ad
	Redirect                   // 3xx, forwarded to the client and never followed
	ClientError                // 4xx
	ServerError                // 5xx
	Unreadable                 // 2xx with a body that is neither an ad nor a no-bid (no_bid_body)

	BadRequest       // the client's request violates a rule
	MethodNotAllowed // not GET, HEAD or POST
	NoRoute          // no route matches
	UnknownSSP       // the client named an SSP outside the route
	Loop             // the request has already passed this process, or too many processes
	TooLarge         // the client's header or body is over its limit, or its header is large and the SSP refuses it
	PendingFull      // the SSP's queue is full
	PendingTimeout   // waited in the queue for as long as the queue allows
	BreakerOpen      // refused because the SSP fails
	QPSLimit         // over the SSP's queries per second
	SSPBackoff       // the SSP asked for a pause (Retry-After)
	SSPDisabled      // an operator has drained or disabled the SSP
	Filtered         // the SSP is not asked, since its conditions on the body do not hold
	Shaped           // the SSP is not asked, since qps.shape chose the request among those to drop
	Overloaded       // over a limit on requests or bytes in flight, or too little CPU
	Draining         // adbuffer stops
	LocalError       // no connection could be opened because adbuffer's machine has no file, port or memory for it
	ConnectFailed    // DNS or TCP failed, or every address is backing off after such a failure
	TLSFailed        // the TLS handshake failed or offered no usable protocol, or every address is backing off
	ConnLost         // the connection broke after bytes may have been sent
	BadResponse      // the SSP's response violates a rule, or its limit on headers is too low for an ordinary request
	ResponseTooLarge // the SSP's response is over its limit
	Deadline         // the deadline passed
	Internal         // an error in adbuffer
	Merged           // the combined response of parallel-all

	ClientGone // the client closed its connection while its request waited
	Cancelled  // a leg that lost or was abandoned

	// Outcomes is the number of outcomes, for arrays indexed by Outcome.
	Outcomes
)

// Row holds what follows from an outcome. The zero value of each field is invalid, so that no
// decision is made by leaving it out.
type Row struct {
	name string
	// Status is the status of adbuffer's own response, FromSSP if an SSP's response is sent.
	Status int
	// Cause is the error type of Proxy-Status (RFC 9209, section 2.3), NoCause for none, or ByError.
	Cause string
	Blame Blame
	// Result is the result of a request for the breaker, and of an attempt for its endpoint.
	Result Result
	Retry  Retry
	// Contact says what a mirror learns about its SSP.
	Contact Contact
	// Mirror says how adbuffer_mirrored_total counts a copy, and Endpoint how
	// adbuffer_endpoint_requests_total counts an attempt.
	Mirror, Endpoint Counter
	// NBR is the reason in adbuffer's own no-ad in OpenRTB, or NoNBR. 0 to 17 are those of OpenRTB 3.0, "List:
	// No-Bid Reason Codes"; from 500 on they are adbuffer's.
	NBR int
	// NonBid is the statuscode in seatnonbid if an SSP gave no bid: IAB's "Seat Non Bid" extension.
	NonBid int
	// Ends says which kinds of requests end with the outcome. For other kinds, metrics have no series of the outcome
	// until it occurs.
	Ends Ends
}

// The values of Row.Status and Row.Cause that are neither a status nor an error type. ByError means
// that the error type depends on the error's phase and cause.
const (
	FromSSP = -1
	NoCause = "none"
	ByError = "by error"
)

// NoNBR is the Row.NBR of an outcome that is no reason for a no-ad.
const NoNBR = -1

// Blame says who caused an outcome that is no success. An outcome with BlameSSP or BlameAdbuffer is a
// failure for logs and traces.
type Blame uint8

const (
	BlameNone Blame = iota + 1
	BlameClient
	BlameSSP
	BlameAdbuffer // its limits, its configuration, or an error in it
)

// Result is the result of a request for the health of its SSP and endpoint.
type Result uint8

// Success and Failure count. Neutral does not: adbuffer or the client decided the outcome.
const (
	Neutral Result = iota + 1
	Success
	Failure
)

// Retry says what an outcome means for a retry.
type Retry uint8

const (
	RetryNever   Retry = iota + 1
	RetryAllowed       // if the error's Progress allows it
	// RetryPrevented means that adbuffer did not send a retry that ends so, if the error's Progress is NotSent. The
	// request then ends with the outcome of the attempt before.
	RetryPrevented
)

// Contact says whether the SSP responded.
type Contact uint8

const (
	NoContact Contact = iota + 1 // adbuffer decided without the SSP
	Responded                    // also with a response that is of no use
	Silent                       // it did not respond, though it was given time
)

// Counter says how a metric counts an outcome.
type Counter uint8

const (
	Counted    Counter = iota + 1 // by its name
	Dropped                       // as dropped
	NotCounted                    // it cannot occur there
)

// Ends is a set of kinds of requests.
type Ends uint8

const (
	Unrouted Ends = 1 << iota // requests of clients before a route is found
	Routed                    // requests of clients to a route
	AtSSP                     // requests to an SSP

	forwarded = Routed | AtSSP
	anywhere  = Unrouted | forwarded
)

// rows has one row for each outcome. The columns are the fields of Row.
var rows = [Outcomes]Row{
	Fill:        {"fill", FromSSP, NoCause, BlameNone, Success, RetryNever, Responded, Counted, Counted, NoNBR, 102, forwarded},
	NoBid:       {"no_bid", FromSSP, NoCause, BlameNone, Success, RetryNever, Responded, Counted, Counted, 1, 100, forwarded},
	Redirect:    {"redirect", FromSSP, NoCause, BlameNone, Success, RetryNever, Responded, Counted, Counted, 1, 102, forwarded},
	ClientError: {"client_error", FromSSP, NoCause, BlameClient, Success, RetryNever, Responded, Counted, Counted, 1, 102, forwarded},
	ServerError: {"server_error", FromSSP, NoCause, BlameSSP, Failure, RetryNever, Responded, Counted, Counted, 1, 102, forwarded},
	Unreadable:  {"unreadable", FromSSP, NoCause, BlameSSP, Failure, RetryNever, Responded, Counted, Counted, 1, 102, forwarded},

	BadRequest:       {"bad_request", 400, "http_request_error", BlameClient, Neutral, RetryNever, NoContact, NotCounted, NotCounted, 1, 100, Unrouted | Routed},
	MethodNotAllowed: {"method_not_allowed", 405, "http_request_error", BlameClient, Neutral, RetryNever, NoContact, NotCounted, NotCounted, 1, 100, Unrouted | Routed},
	NoRoute:          {"no_route", 404, "destination_not_found", BlameClient, Neutral, RetryNever, NoContact, NotCounted, NotCounted, 1, 100, Unrouted},
	UnknownSSP:       {"unknown_ssp", 404, "destination_not_found", BlameClient, Neutral, RetryNever, NoContact, NotCounted, NotCounted, 1, 100, Routed},
	Loop:             {"loop", 508, "proxy_loop_detected", BlameAdbuffer, Neutral, RetryNever, NoContact, NotCounted, NotCounted, 1, 100, Unrouted},
	TooLarge:         {"too_large", 413, "http_request_error", BlameClient, Neutral, RetryNever, NoContact, Counted, Counted, 1, 100, anywhere},
	PendingFull:      {"pending_full", 503, "connection_limit_reached", BlameAdbuffer, Neutral, RetryPrevented, NoContact, Dropped, NotCounted, 500, 203, forwarded},
	PendingTimeout:   {"pending_timeout", 503, "connection_limit_reached", BlameAdbuffer, Neutral, RetryPrevented, Silent, Dropped, NotCounted, 15, 101, forwarded},
	BreakerOpen:      {"breaker_open", 503, "destination_unavailable", BlameAdbuffer, Neutral, RetryNever, NoContact, Counted, NotCounted, 500, 203, forwarded},
	QPSLimit:         {"qps_limit", 503, "http_request_denied", BlameAdbuffer, Neutral, RetryPrevented, NoContact, Dropped, NotCounted, 500, 203, forwarded},
	SSPBackoff:       {"ssp_backoff", 503, "destination_unavailable", BlameAdbuffer, Neutral, RetryNever, NoContact, Counted, NotCounted, 500, 203, forwarded},
	SSPDisabled:      {"ssp_disabled", 503, "destination_unavailable", BlameAdbuffer, Neutral, RetryNever, NoContact, Counted, NotCounted, 500, 203, forwarded},
	Filtered:         {"filtered", 204, NoCause, BlameNone, Neutral, RetryNever, NoContact, Counted, NotCounted, 501, 203, forwarded}, // the route's no-ad
	Shaped:           {"shaped", 204, NoCause, BlameNone, Neutral, RetryNever, NoContact, Dropped, NotCounted, 500, 203, forwarded},   // the route's no-ad
	Overloaded:       {"overloaded", 503, "proxy_internal_response", BlameAdbuffer, Neutral, RetryPrevented, NoContact, Dropped, Counted, 500, 203, anywhere},
	Draining:         {"draining", 503, "proxy_internal_response", BlameAdbuffer, Neutral, RetryPrevented, NoContact, Counted, NotCounted, 1, 100, anywhere},
	LocalError:       {"local_error", 503, "proxy_internal_error", BlameAdbuffer, Neutral, RetryPrevented, NoContact, Dropped, NotCounted, 1, 100, forwarded},
	ConnectFailed:    {"connect_failed", 502, ByError, BlameSSP, Failure, RetryAllowed, Silent, Counted, NotCounted, 1, 103, forwarded},
	TLSFailed:        {"tls_failed", 502, ByError, BlameSSP, Failure, RetryAllowed, Silent, Counted, NotCounted, 1, 103, forwarded},
	ConnLost:         {"conn_lost", 502, "connection_terminated", BlameSSP, Failure, RetryAllowed, Silent, Counted, Counted, 1, 103, forwarded},
	BadResponse:      {"bad_response", 502, "http_protocol_error", BlameSSP, Failure, RetryAllowed, Responded, Counted, Counted, 1, 102, forwarded}, // useless

	// Its result is a Success. Shedding requests would not make the response smaller, and might hide
	// from operators which limit to set.
	ResponseTooLarge: {"response_too_large", 502, "http_response_body_size", BlameSSP, Success, RetryNever, Responded, Counted, Counted, 1, 102, forwarded},
	// Its result is a Failure if the SSP got the request and had enough time: see package ssp.
	Deadline: {"deadline", 504, ByError, BlameSSP, Neutral, RetryPrevented, Silent, Counted, Counted, 15, 101, forwarded},
	Internal: {"internal", 500, "proxy_internal_error", BlameAdbuffer, Neutral, RetryNever, NoContact, Counted, Counted, 1, 100, anywhere},
	Merged:   {"merged", 200, NoCause, BlameNone, Neutral, RetryNever, NoContact, NotCounted, NotCounted, NoNBR, 100, Routed},

	// No client receives these statuses.
	ClientGone: {"client_gone", 503, NoCause, BlameClient, Neutral, RetryNever, NoContact, NotCounted, Counted, 1, 100, forwarded},
	Cancelled:  {"cancelled", 503, NoCause, BlameNone, Neutral, RetryNever, NoContact, NotCounted, Counted, 1, 101, AtSSP},
}

// Row returns the outcome's row, which no caller may change.
func (o Outcome) Row() *Row { return &rows[o] }

// String returns the name that metrics and error bodies use.
func (o Outcome) String() string { return rows[o].name }

// IsOutcome reports whether an outcome has this name.
func IsOutcome(name string) bool {
	return slices.ContainsFunc(rows[:], func(r Row) bool { return r.name == name })
}

// IsRefusal reports whether a request can end with an outcome of this name before any SSP is asked.
func IsRefusal(name string) bool {
	return slices.ContainsFunc([]Outcome{BadRequest, MethodNotAllowed, NoRoute, UnknownSSP, Loop, TooLarge, Deadline, Filtered, Overloaded, Draining}, func(o Outcome) bool {
		return o.String() == name
	})
}

// HasResponse reports whether the outcome classifies an SSP's response.
func (o Outcome) HasResponse() bool { return rows[o].Status == FromSSP }

// NotAsked reports whether a rule about which requests an SSP gets kept the request from it.
func (o Outcome) NotAsked() bool { return o == Filtered || o == Shaped }

// IsFailure reports whether the SSP or adbuffer is to blame.
func (o Outcome) IsFailure() bool { return rows[o].Blame >= BlameSSP }
