package admin

import (
	"crypto/tls"
	"net"
	"sync"
	"time"

	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/handshake"
	"adbuffer/internal/wire/socket"
)

// turnPatience is how long a TLS handshake may wait for its turn to compute. It equals the
// ReadHeaderTimeout, by which net/http bounds the whole handshake.
const turnPatience = 5 * time.Second

// tlsListener accepts connections whose TLS handshakes take turns in the share.
type tlsListener struct {
	net.Listener
	config *tls.Config
	share  *cpushare.Share
}

// Accept implements net.Listener.
func (l *tlsListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	below := &handshakeConn{Conn: conn, gone: make(chan struct{})}
	below.turns = l.share.NewHandshake(cpushare.AdminHandshake, cpushare.PartyOf(socket.PeerOf(conn)), below.gone)
	return tls.Server(below, l.config), nil
}

// handshakeConn is the socket below TLS. It takes turns until the first request has been read, since
// net/http does not say when the handshake has ended. Until then only one goroutine uses it.
type handshakeConn struct {
	net.Conn
	turns *cpushare.Handshake // nil after the handshake
	bytes handshake.ClientBytes
	once  sync.Once
	gone  chan struct{} // closed by drop
}

// Read implements net.Conn.
func (c *handshakeConn) Read(b []byte) (int, error) {
	if c.turns == nil {
		return c.Conn.Read(b)
	}
	c.turns.Release()
	if !c.bytes.HelloEnded { // bytes after adbuffer's reply may already be a request
		var err error
		if b, err = c.bytes.LimitRead(b); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Read(b)
	c.bytes.CountRead(n)
	if err == nil {
		err = c.turns.Arrived(b[:n], time.Now().Add(turnPatience))
	}
	return n, err
}

// Write implements net.Conn.
func (c *handshakeConn) Write(b []byte) (int, error) {
	if c.turns != nil {
		c.turns.Release()
		c.bytes.ServerWrote()
	}
	return c.Conn.Write(b)
}

// end stops taking turns, since the handshake has ended. Only the goroutine that serves the connection may
// call it.
func (c *handshakeConn) end() {
	if c.turns != nil {
		c.turns.Release()
		c.turns = nil
	}
}

// drop closes the socket, and ends the wait for a turn. Any goroutine may call it.
func (c *handshakeConn) drop() {
	c.once.Do(func() { close(c.gone) })
	c.Conn.Close()
}
