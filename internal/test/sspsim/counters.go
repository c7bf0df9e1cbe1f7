package sspsim

import "maps"

// Counters count what an SSP has received and sent since its start or since ResetCounters.
// OpenConnections and InFlight are current values.
type Counters struct {
	Connections     uint64 `json:"connections"`      // TCP connections accepted
	OpenConnections int64  `json:"open_connections"` // open connections now
	Handshakes      uint64 `json:"handshakes"`       // TLS handshakes that succeeded
	Resumed         uint64 `json:"resumed"`          // handshakes that resumed a session ticket
	HandshakeErrors uint64 `json:"handshake_errors"` // TLS handshakes that failed

	Requests    uint64 `json:"requests"`      // requests that were read whole, to be processed
	Responded   uint64 `json:"responded"`     // requests whose response was written whole
	InFlight    int64  `json:"in_flight"`     // requests that are being processed now
	MaxInFlight int64  `json:"max_in_flight"` // the largest InFlight
	// MaxPerSecond is the largest number of Requests in one second of the clock.
	MaxPerSecond uint64 `json:"max_per_second"`
	// Unprocessed requests are provably not processed and not among Requests: refused streams and
	// streams above a GOAWAY.
	Unprocessed uint64 `json:"unprocessed"`
	// BadRequests are requests that violate HTTP; LastBadRequest is the last violation.
	BadRequests    uint64 `json:"bad_requests"`
	LastBadRequest string `json:"last_bad_request"`

	ByStatus map[int]uint64    `json:"by_status"` // responses that were written whole, by status
	Faults   map[string]uint64 `json:"faults"`    // injected faults, by their key in Faults

	ResetsSeen uint64 `json:"resets_seen"` // RST_STREAM from the peer
	IdleClosed uint64 `json:"idle_closed"` // connections closed by IdleTimeout
}

// count changes the counters.
func (s *SSP) count(change func(*Counters)) {
	s.counting.Lock()
	defer s.counting.Unlock()
	change(&s.counters)
}

// Counters returns a snapshot.
func (s *SSP) Counters() (all Counters) {
	s.count(func(c *Counters) {
		all = *c
		all.ByStatus, all.Faults = maps.Clone(c.ByStatus), maps.Clone(c.Faults)
	})
	return all
}

// ResetCounters sets all counters to 0, except the current values. MaxInFlight becomes InFlight.
func (s *SSP) ResetCounters() {
	s.count(func(c *Counters) {
		*c = Counters{OpenConnections: c.OpenConnections, InFlight: c.InFlight, MaxInFlight: c.InFlight,
			ByStatus: map[int]uint64{}, Faults: map[string]uint64{}}
	})
}

func (s *SSP) countFault(f event) {
	if f != noFault {
		s.count(func(c *Counters) { c.Faults[f.name()]++ })
	}
}

func (s *SSP) countBadRequest(err error) {
	s.count(func(c *Counters) {
		c.BadRequests++
		c.LastBadRequest = err.Error()
	})
}

// countResponse counts a response that was written whole.
func (s *SSP) countResponse(status int) {
	s.count(func(c *Counters) {
		c.Responded++
		c.ByStatus[status]++
	})
}
