package exchange

// CloseReason is the reason why a connection was closed. It is the label `reason` of
// adbuffer_pool_connections_closed_total.
type CloseReason uint8

// NotClosed is the zero value: the connection takes requests.
const (
	NotClosed         CloseReason = iota
	ClosedIdle                    // idle for longer than idle_timeout
	ClosedMaxAge                  // older than max_age
	ClosedDNS                     // look-ups no longer return its address
	ClosedMaxRequests             // carried max_requests_per_conn
	ClosedByPeer                  // the SSP closed it, or announced that it will
	ClosedUnsolicited             // bytes arrived while no request was outstanding
	ClosedLeftover                // bytes followed a response
	ClosedGoaway                  // HTTP/2 GOAWAY
	ClosedTimeout                 // the response of an abandoned exchange did not end within linger
	ClosedError                   // the connection or its framing failed
	ClosedDrain                   // adbuffer stops, or the SSP's settings changed

	// CloseReasons is the number of reasons, for arrays indexed by CloseReason.
	CloseReasons
)

var closeReasonNames = [CloseReasons]string{
	NotClosed: "", ClosedIdle: "idle", ClosedMaxAge: "max_age", ClosedDNS: "dns", ClosedMaxRequests: "max_requests", ClosedByPeer: "peer_closed",
	ClosedUnsolicited: "unsolicited", ClosedLeftover: "leftover", ClosedGoaway: "goaway", ClosedTimeout: "timeout",
	ClosedError: "error", ClosedDrain: "drain",
}

// OfIdle reports whether only idle connections are closed for r. Such a connection may send TLS's close_notify, since
// the write cannot be delayed.
func (r CloseReason) OfIdle() bool {
	return r == ClosedIdle || r == ClosedMaxAge || r == ClosedDNS || r == ClosedMaxRequests
}

// String returns the name that metrics use, empty for NotClosed.
func (r CloseReason) String() string { return closeReasonNames[r] }
