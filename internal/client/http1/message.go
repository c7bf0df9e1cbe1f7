package http1

import (
	"bytes"
	"net"
	"net/netip"

	"adbuffer/internal/wire/socket"
)

// WithMessage calls use with a connection whose client, at peer, sends message and then closes it. The
// connection takes no response. An error says why the head cannot be read.
func (s *Server) WithMessage(message []byte, peer netip.Addr, use func(*Conn)) error {
	c := &Conn{server: s, socket: socket.New(&messageConn{message: bytes.NewReader(message)})}
	c.Client.Peer, c.Client.Gone = peer, func() bool { return false }
	c.body.conn = c
	defer c.early.release(s)
	if _, err := c.readHead(make([]byte, s.http.ReadBufferSize)); err != nil {
		return err
	}
	use(c)
	return nil
}

// messageConn is a connection that delivers one message.
type messageConn struct {
	net.Conn // nil
	message  *bytes.Reader
}

func (c *messageConn) Read(b []byte) (int, error)  { return c.message.Read(b) }
func (c *messageConn) Write(b []byte) (int, error) { return len(b), nil }
