package upstream

// Outcome is how a request, or one leg of it, ended. It is a closed set: its
// names are the values of the metric label `outcome`, the reasons in our own
// error bodies, and what stands behind `proxy/` in X-Adbuffer-Source.
type Outcome uint8

// The first five say what an SSP's answer was, the rest that there was none.
const (
	Fill        Outcome = iota // 2xx with a body
	NoBid                      // 204, an empty body, or a document without an ad
	Redirect                   // 3xx, passed on and never followed
	ClientError                // 4xx
	ServerError                // 5xx

	BadRequest       // the client's request breaks a rule
	MethodNotAllowed // not GET, HEAD or POST
	NoRoute          // no route matches
	UnknownSSP       // the client named an SSP outside the route
	Loop             // the request has passed this process, or too many, before
	TooLarge         // the client's head or body is over its limit
	PendingFull      // the SSP's queue is full
	PendingTimeout   // waited in the queue for as long as it allows
	BreakerOpen      // shed, since the SSP fails
	QPSLimit         // over the SSP's queries per second
	SSPBackoff       // the SSP asked for a pause (Retry-After)
	Overloaded       // over a limit on what is in flight or buffered
	Draining         // adbuffer is stopping
	ConnectFailed    // DNS or TCP failed, or every address backs off since they did
	TLSFailed        // the TLS handshake failed, or offered no usable protocol, or every address backs off since
	ConnLost         // the connection broke after bytes may have been sent
	BadResponse      // the SSP's answer breaks a rule
	ResponseTooLarge // the SSP's answer is over its limit
	Deadline         // the time was up
	Internal         // a fault of ours
	Merged           // the envelope of parallel-all

	ClientGone // the client left while its request waited
	Cancelled  // a leg that lost, abandoned

	// Outcomes is how many there are, for arrays indexed by Outcome.
	Outcomes
)

var outcomeNames = [Outcomes]string{
	Fill: "fill", NoBid: "no_bid", Redirect: "redirect", ClientError: "client_error", ServerError: "server_error",
	BadRequest: "bad_request", MethodNotAllowed: "method_not_allowed", NoRoute: "no_route", UnknownSSP: "unknown_ssp",
	Loop: "loop", TooLarge: "too_large", PendingFull: "pending_full", PendingTimeout: "pending_timeout", BreakerOpen: "breaker_open",
	QPSLimit: "qps_limit", SSPBackoff: "ssp_backoff", Overloaded: "overloaded", Draining: "draining",
	ConnectFailed: "connect_failed", TLSFailed: "tls_failed", ConnLost: "conn_lost", BadResponse: "bad_response",
	ResponseTooLarge: "response_too_large", Deadline: "deadline", Internal: "internal", Merged: "merged",
	ClientGone: "client_gone", Cancelled: "cancelled",
}

// String returns the name that metrics and error bodies use.
func (o Outcome) String() string {
	if o < Outcomes {
		return outcomeNames[o]
	}
	return "unknown"
}

// HasResponse reports whether an SSP's answer stands behind the outcome.
func (o Outcome) HasResponse() bool { return o <= ServerError }

// Protocol is what a connection speaks. It is the metric label `protocol`.
type Protocol uint8

// Unknown is what a connection speaks before ALPN has told.
const (
	Unknown Protocol = iota
	HTTP1
	HTTP1Pipelined
	HTTP2

	// Protocols is how many there are, for arrays indexed by Protocol.
	Protocols
)

var protocolNames = [Protocols]string{Unknown: "unknown", HTTP1: "http1", HTTP1Pipelined: "http1-pipelined", HTTP2: "http2"}

// String returns the name that metrics use.
func (p Protocol) String() string {
	if p < Protocols {
		return protocolNames[p]
	}
	return "unknown"
}

// CloseReason says why a connection was closed. It is the label `reason` of
// adbuffer_pool_connections_closed_total.
type CloseReason uint8

// NotClosed is the zero value: the connection lives and takes requests.
const (
	NotClosed         CloseReason = iota
	ClosedIdle                    // idle for longer than idle_timeout
	ClosedMaxAge                  // older than max_age
	ClosedMaxRequests             // carried max_requests_per_conn
	ClosedByPeer                  // the SSP closed it, or announced to
	ClosedUnsolicited             // bytes came while no request was outstanding
	ClosedLeftover                // bytes were left behind an answer
	ClosedGoaway                  // HTTP/2 GOAWAY
	ClosedTimeout                 // an abandoned exchange did not end within linger
	ClosedError                   // the connection or its framing failed
	ClosedDrain                   // adbuffer stops, or the SSP's settings changed

	// CloseReasons is how many there are, for arrays indexed by CloseReason.
	CloseReasons
)

var closeReasonNames = [CloseReasons]string{
	NotClosed: "", ClosedIdle: "idle", ClosedMaxAge: "max_age", ClosedMaxRequests: "max_requests", ClosedByPeer: "peer_closed",
	ClosedUnsolicited: "unsolicited", ClosedLeftover: "leftover", ClosedGoaway: "goaway", ClosedTimeout: "timeout",
	ClosedError: "error", ClosedDrain: "drain",
}

// String returns the name that metrics use, empty for NotClosed.
func (r CloseReason) String() string {
	if r < CloseReasons {
		return closeReasonNames[r]
	}
	return "unknown"
}
