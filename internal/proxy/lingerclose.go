package proxy

import (
	"net"
	"time"

	"adbuffer/internal/socket"
)

// A socket that is closed while the client's bytes stand in it, or are still on
// their way, is reset, and the client's kernel throws away the responses that the
// client has not read yet. So adbuffer ends its own half first, and reads past what
// comes until the client ends the other half: RFC 9112, section 9.6.
//
// That is for connections which adbuffer ends before the client has sent all that it
// had to say: after a request that was refused, and in a drain, where requests may
// be pipelined behind the last one.
const (
	lingerFor  = 2 * time.Second
	lingerMost = 1 << 20 // bytes beside a body; a client that sends more is reset
)

// lingers reports whether the connection must not be closed at once.
func (c *clientConn) lingers() bool {
	if c.spoken.Load() {
		return false // the server of HTTP/2 does the same itself
	}
	switch c.PeekSocket() {
	case socket.Readable:
		return true
	case socket.Ended:
		return false
	}
	return c.unread || c.proxy.draining.Load()
}

// linger ends the connection. It runs on a goroutine of its own, and ends with the
// client's half, after lingerFor, or when the drain is over.
func (c *clientConn) linger() {
	if c.tls != nil {
		c.closing.Store(true)
		c.tls.CloseWrite() //nolint:errcheck // the client has gone
	}
	raw := c.Conn.Conn
	if half, ok := raw.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		readPast(raw, c.proxy.current().opts.MaxBodyBytes+lingerMost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = serving
	c.closeLocked() //nolint:errcheck // nothing is left to be done about it
}

// readPast reads until the stream ends, but at most so many bytes.
func readPast(c net.Conn, most int) {
	c.SetReadDeadline(time.Now().Add(lingerFor)) //nolint:errcheck // a closed socket fails the read
	var drop [512]byte                           // small, since many may linger
	for n := 0; n < most; {
		m, err := c.Read(drop[:])
		if err != nil {
			return
		}
		n += m
	}
}
