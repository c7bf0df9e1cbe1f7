package socket

import (
	"sync/atomic"

	"golang.org/x/sys/cpu"
)

// Traffic counts the bytes that connections read and write at their sockets. Under TLS these are
// the bytes of its records and handshakes.
type Traffic struct {
	received atomic.Uint64
	_        cpu.CacheLinePad // readers and writers run on different cores
	sent     atomic.Uint64
}

// Received returns how many bytes were read.
func (t *Traffic) Received() uint64 { return t.received.Load() }

// Sent returns how many bytes the kernel took.
func (t *Traffic) Sent() uint64 { return t.sent.Load() }

func (t *Traffic) addSent(n int) {
	if t != nil && n > 0 {
		t.sent.Add(uint64(n))
	}
}

// Count adds the bytes of c to t. It must be called before the first Read and Write.
func (c *Conn) Count(t *Traffic) { c.traffic = t }
