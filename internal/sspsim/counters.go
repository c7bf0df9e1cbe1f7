package sspsim

import "sync/atomic"

// Counters count what an SSP has received and sent since its start or since ResetCounters.
// OpenConnections and InFlight are current values.
type Counters struct {
	Connections      uint64 `json:"connections"`       // TCP connections accepted
	OpenConnections  int64  `json:"open_connections"`  // open connections now
	HTTP2Connections uint64 `json:"http2_connections"` // connections that began to speak HTTP/2
	Handshakes       uint64 `json:"handshakes"`        // TLS handshakes that succeeded
	Resumed          uint64 `json:"resumed"`           // handshakes that resumed a session ticket
	HandshakeErrors  uint64 `json:"handshake_errors"`  // TLS handshakes that failed

	Requests    uint64 `json:"requests"`      // requests that were read whole, to be processed
	Responded   uint64 `json:"answered"`      // requests whose response was written whole
	InFlight    int64  `json:"in_flight"`     // requests that are being processed now
	MaxInFlight int64  `json:"max_in_flight"` // the largest InFlight
	// Unprocessed requests are provably not processed and not among Requests: refused streams and
	// streams above a GOAWAY.
	Unprocessed uint64 `json:"unprocessed"`
	// BadRequests are requests that violate HTTP; LastBadRequest is the last violation.
	BadRequests    uint64 `json:"bad_requests"`
	LastBadRequest string `json:"last_bad_request"`

	ByStatus map[int]uint64    `json:"by_status"` // responses that were written whole, by status
	Faults   map[string]uint64 `json:"faults"`    // injected faults, by their key in Faults

	ResetsSeen        uint64 `json:"resets_seen"`        // RST_STREAM from the peer
	WriteErrors       uint64 `json:"write_errors"`       // writes that failed because the peer had closed the connection
	IdleClosed        uint64 `json:"idle_closed"`        // connections closed by IdleTimeout
	RequestBodyBytes  uint64 `json:"request_body_bytes"` // without framing
	ResponseBodyBytes uint64 `json:"answer_body_bytes"`
}

// counters are the live Counters. The values of a snapshot are not from the same moment.
type counters struct {
	connections, http2Connections, handshakes, resumed, handshakeErrors atomic.Uint64
	requests, responded, unprocessed, badRequests                       atomic.Uint64
	resetsSeen, writeErrors, idleClosed, bodyIn, bodyOut                atomic.Uint64
	open, inFlight, maxInFlight                                         atomic.Int64
	byStatus                                                            [600]atomic.Uint64
	faults                                                              [faults]atomic.Uint64
	lastBad                                                             atomic.Pointer[string]
}

// Counters returns a snapshot.
func (s *SSP) Counters() Counters {
	n := &s.counters
	c := Counters{
		Connections: n.connections.Load(), OpenConnections: n.open.Load(),
		HTTP2Connections: n.http2Connections.Load(), Handshakes: n.handshakes.Load(),
		Resumed: n.resumed.Load(), HandshakeErrors: n.handshakeErrors.Load(),
		Requests: n.requests.Load(), Responded: n.responded.Load(),
		InFlight: n.inFlight.Load(), MaxInFlight: n.maxInFlight.Load(),
		Unprocessed: n.unprocessed.Load(), BadRequests: n.badRequests.Load(),
		ByStatus: map[int]uint64{}, Faults: map[string]uint64{},
		ResetsSeen: n.resetsSeen.Load(), WriteErrors: n.writeErrors.Load(), IdleClosed: n.idleClosed.Load(),
		RequestBodyBytes: n.bodyIn.Load(), ResponseBodyBytes: n.bodyOut.Load(),
	}
	if last := n.lastBad.Load(); last != nil {
		c.LastBadRequest = *last
	}
	for status := range n.byStatus {
		if v := n.byStatus[status].Load(); v > 0 {
			c.ByStatus[status] = v
		}
	}
	for kind := range n.faults {
		if v := n.faults[kind].Load(); v > 0 {
			c.Faults[faultNames[kind]] = v
		}
	}
	return c
}

// ResetCounters sets all counters to 0, except the current values. MaxInFlight becomes InFlight.
// Responses that are being written may be counted in part.
func (s *SSP) ResetCounters() {
	n := &s.counters
	for _, v := range []*atomic.Uint64{&n.connections, &n.http2Connections, &n.handshakes, &n.resumed,
		&n.handshakeErrors, &n.requests, &n.responded, &n.unprocessed, &n.badRequests, &n.resetsSeen,
		&n.writeErrors, &n.idleClosed, &n.bodyIn, &n.bodyOut} {
		v.Store(0)
	}
	for i := range n.byStatus {
		n.byStatus[i].Store(0)
	}
	for i := range n.faults {
		n.faults[i].Store(0)
	}
	n.lastBad.Store(nil)
	n.maxInFlight.Store(n.inFlight.Load())
}

func (n *counters) begin(bodyBytes int) {
	n.requests.Add(1)
	if bodyBytes > 0 {
		n.bodyIn.Add(uint64(bodyBytes))
	}
	now := n.inFlight.Add(1)
	for most := n.maxInFlight.Load(); now > most; most = n.maxInFlight.Load() {
		if n.maxInFlight.CompareAndSwap(most, now) {
			return
		}
	}
}

func (n *counters) end() { n.inFlight.Add(-1) }

func (n *counters) response(status, bodyBytes int) {
	n.responded.Add(1)
	n.byStatus[status].Add(1)
	if bodyBytes > 0 {
		n.bodyOut.Add(uint64(bodyBytes))
	}
}

func (n *counters) fault(f fault) {
	if f != noFault {
		n.faults[f].Add(1)
	}
}

func (n *counters) badRequest(err error) {
	text := err.Error()
	n.lastBad.Store(&text)
	n.badRequests.Add(1)
}
