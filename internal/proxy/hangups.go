package proxy

import (
	"sync"

	"adbuffer/internal/socket"
)

// hangUps watches clients' connections, so that requests of clients that have left are cancelled.
// The first connection starts it. If the process may open no further file, hangUps cannot start,
// and such requests end at their deadlines.
type hangUps struct {
	once sync.Once
	set  *socket.HangUps // nil if it has not started; its methods accept nil
}

func (h *hangUps) add(c *clientConn) {
	if !c.IsKernels() {
		return
	}
	h.once.Do(func() {
		if set, err := socket.NewHangUps(); err == nil {
			h.set = set
		}
	})
	h.set.Add(c.Conn, c.hungUp)
}

// remove must be called before c is closed.
func (h *hangUps) remove(c *clientConn) {
	if c.IsKernels() {
		h.set.Remove(c.Conn)
	}
}

// close ends it. No connection is accepted any more.
func (h *hangUps) close() {
	h.once.Do(func() {})
	h.set.Close() //nolint:errcheck // nothing depends on it any more
}
