package http1server

import (
	"crypto/tls"
	"sync/atomic"

	"adbuffer/internal/handshake"
)

// handshakes counts TLS handshakes with clients.
type handshakes struct {
	now           atomic.Int64 // handshakes that are running
	full, resumed atomic.Uint64
	counts        handshake.Counts
}

func (h *handshakes) count(c *tls.Conn, err error) {
	if err != nil {
		h.counts.Failed(handshake.ReasonOf(err))
		return
	}
	state := c.ConnectionState()
	h.counts.Succeeded(&state)
	if state.DidResume {
		h.resumed.Add(1)
	} else {
		h.full.Add(1)
	}
}
