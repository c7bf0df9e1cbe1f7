package upstream

import "slices"

// Outcome is how a request, or one leg of it, ended. It is a closed set. Its names are the values
// of the metric label `outcome`, the reasons in adbuffer's own error bodies, and the text behind
// `proxy/` in X-Adbuffer-Source.
type Outcome uint8

// The first five classify an SSP's response. All others mean that there was no response.
const (
	Fill        Outcome = iota // 2xx with a body
	NoBid                      // 204, an empty body, or a document without an ad
	Redirect                   // 3xx, forwarded to the client and never followed
	ClientError                // 4xx
	ServerError                // 5xx

	BadRequest       // the client's request violates a rule
	MethodNotAllowed // not GET, HEAD or POST
	NoRoute          // no route matches
	UnknownSSP       // the client named an SSP outside the route
	Loop             // the request has already passed this process, or too many processes
	TooLarge         // the client's header or body is over its limit
	PendingFull      // the SSP's queue is full
	PendingTimeout   // waited in the queue for as long as the queue allows
	BreakerOpen      // refused because the SSP fails
	QPSLimit         // over the SSP's queries per second
	SSPBackoff       // the SSP asked for a pause (Retry-After)
	SSPDisabled      // an operator has drained or disabled the SSP
	Overloaded       // over a limit on requests or bytes in flight
	Draining         // adbuffer stops
	ConnectFailed    // DNS or TCP failed, or every address is backing off after such a failure
	TLSFailed        // the TLS handshake failed or offered no usable protocol, or every address is backing off
	ConnLost         // the connection broke after bytes may have been sent
	BadResponse      // the SSP's response violates a rule
	ResponseTooLarge // the SSP's response is over its limit
	Deadline         // the deadline passed
	Internal         // an error in adbuffer
	Merged           // the combined response of parallel-all

	ClientGone // the client closed its connection while its request waited
	Cancelled  // a leg that lost or was abandoned

	// Outcomes is the number of outcomes, for arrays indexed by Outcome.
	Outcomes
)

var outcomeNames = [Outcomes]string{
	Fill: "fill", NoBid: "no_bid", Redirect: "redirect", ClientError: "client_error", ServerError: "server_error",
	BadRequest: "bad_request", MethodNotAllowed: "method_not_allowed", NoRoute: "no_route", UnknownSSP: "unknown_ssp",
	Loop: "loop", TooLarge: "too_large", PendingFull: "pending_full", PendingTimeout: "pending_timeout", BreakerOpen: "breaker_open",
	QPSLimit: "qps_limit", SSPBackoff: "ssp_backoff", SSPDisabled: "ssp_disabled", Overloaded: "overloaded", Draining: "draining",
	ConnectFailed: "connect_failed", TLSFailed: "tls_failed", ConnLost: "conn_lost", BadResponse: "bad_response",
	ResponseTooLarge: "response_too_large", Deadline: "deadline", Internal: "internal", Merged: "merged",
	ClientGone: "client_gone", Cancelled: "cancelled",
}

// String returns the name that metrics and error bodies use.
func (o Outcome) String() string { return outcomeNames[o] }

// IsOutcome reports whether an outcome has this name.
func IsOutcome(name string) bool { return slices.Contains(outcomeNames[:], name) }

// HasResponse reports whether the outcome classifies an SSP's response.
func (o Outcome) HasResponse() bool { return o <= ServerError }

// Result is the result of an attempt for the health of its endpoint.
type Result uint8

// The results.
const (
	Neutral Result = iota
	Success
	Failure
)
