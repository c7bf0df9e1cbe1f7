package http1

import (
	"net"
	"time"

	"adbuffer/internal/wire/socket"
)

// If a socket is closed while bytes from the client are unread, or still in flight, the kernel resets the connection.
// The client's kernel then discards responses that the client has not read. So adbuffer first closes its sending
// half, and discards bytes until the client closes the other half: RFC 9112, section 9.6.
//
// Connections linger if the client may still be sending: after a refused request, and in a drain,
// when requests may be pipelined after the last one.
const (
	lingerFor   = 2 * time.Second
	lingerLimit = 1 << 20 // bytes, in addition to a body, after which the connection is reset
)

// mustLinger reports whether the connection must linger before it is closed.
func (c *Conn) mustLinger() bool {
	switch c.socket.PeekSocket() {
	case socket.Readable:
		return true
	case socket.Ended:
		return false
	}
	return c.partlyRead || c.server.draining.Load()
}

// linger closes the connection. It runs on its own goroutine until the client closes its half,
// lingerFor ends, or the drain cuts the connection.
func (c *Conn) linger() {
	if c.tls != nil {
		c.deadlines.closing.Store(true)
		c.tls.CloseWrite()
	}
	c.discardUnread()
	c.life.mu.Lock()
	defer c.life.mu.Unlock()
	c.life.phase = serving
	c.closeLocked()
}

// discardUnread waits until the client closes its half, lingerFor at most.
func (c *Conn) discardUnread() {
	raw := c.socket.Conn
	raw.SetReadDeadline(time.Now().Add(lingerFor))
	discardUnread(raw, c.server.options().MaxBodyBytes+lingerLimit)
}

// discardUnread closes the sending half of c, and discards bytes until the client closes the other
// half or has sent limit bytes.
func discardUnread(c net.Conn, limit int) {
	if half, ok := c.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		return
	}
	var discarded [512]byte // small, since many connections may linger
	for n := 0; n < limit; {
		m, err := c.Read(discarded[:])
		if err != nil {
			return
		}
		n += m
	}
}
