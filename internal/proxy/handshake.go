package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"adbuffer/internal/socket"
)

// A handshake costs as much CPU as ten to fifty forwarded requests, and is to be
// had for a few hundred bytes. When thousands of clients connect at once, after
// a deployment of theirs or an attack, handshakes would fill the run queue, and
// every request would wait behind all of them. So they take turns: only so many
// compute at once, and on half the cores at the most. A turn is held from where
// a client's bytes have come to where its next ones are awaited or ours are
// sent, never while somebody waits for a client.
//
// While 300 clients shake hands as fast as they can, on two cores and with a key
// of RSA, a request on a kept connection takes 0.3 ms (p99 2.3 ms) so, instead of
// 197 ms (p99 505 ms), and handshakes are 0.7 as many a second
// (BenchmarkRequestDuringHandshakes).

// turns bounds the handshakes that compute at once.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// tlsSocket is what TLS reads and writes.
type tlsSocket struct {
	*socket.Conn
	client *clientConn
}

// Read implements net.Conn.
func (s tlsSocket) Read(b []byte) (int, error) {
	if !s.client.shaking {
		return s.Conn.Read(b)
	}
	s.client.endTurn()
	n, err := s.Conn.Read(b)
	if err == nil {
		err = s.client.takeTurn()
	}
	return n, err
}

// Write implements net.Conn.
func (s tlsSocket) Write(b []byte) (int, error) {
	s.client.endTurn()
	return s.WriteInBurst(b)
}

// takeTurn waits for a turn until the handshake's time is over.
func (c *clientConn) takeTurn() error {
	select {
	case c.proxy.turns <- struct{}{}:
		c.hasTurn = true
		return nil
	default:
	}
	timer := time.NewTimer(time.Until(c.by))
	defer timer.Stop()
	select {
	case c.proxy.turns <- struct{}{}:
		c.hasTurn = true
		return nil
	case <-timer.C:
		return os.ErrDeadlineExceeded
	}
}

func (c *clientConn) endTurn() {
	if c.hasTurn {
		c.hasTurn = false
		<-c.proxy.turns
	}
}

// shakeHands gives the client read_timeout for all of its handshake.
func (c *clientConn) shakeHands() error {
	c.stage, c.byStage = handshaking, handshaking
	c.by = time.Now().Add(c.proxy.current().opts.ReadTimeout)
	c.proxy.handshakes.now.Add(1)
	c.shaking = true
	err := c.tls.Handshake()
	c.shaking = false
	c.endTurn()
	c.proxy.handshakes.now.Add(-1)
	c.proxy.handshakes.count(c.tls, err)
	if err != nil {
		c.answerPlaintext(err)
		return err
	}
	c.stage, c.byStage = idle, idle
	return nil
}

// handshakeFault is why a TLS handshake failed: the label `reason`.
type handshakeFault uint8

const (
	handshakeTimeout handshakeFault = iota // not within read_timeout
	handshakeClosed                        // the client left
	handshakeRefused                       // the client said no: it does not trust our certificate, say
	handshakeInvalid                       // we said no: no version in common, no client certificate that we trust, no TLS at all
	handshakeFaults
)

var handshakeFaultNames = [handshakeFaults]string{"timeout", "closed", "refused", "invalid"}

// handshakes counts TLS handshakes with clients.
type handshakes struct {
	now           atomic.Int64 // under way
	full, resumed atomic.Uint64
	failed        [handshakeFaults]atomic.Uint64
}

func (h *handshakes) count(c *tls.Conn, err error) {
	switch {
	case err != nil:
		h.failed[handshakeFaultOf(err)].Add(1)
	case c.ConnectionState().DidResume:
		h.resumed.Add(1)
	default:
		h.full.Add(1)
	}
}

func handshakeFaultOf(err error) handshakeFault {
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return handshakeTimeout
	case errors.As(err, &op) && op.Op == "remote error": // so crypto/tls marks an alert that came
		return handshakeRefused
	case op != nil && op.Op == "local error": // and one that was sent
		return handshakeInvalid
	case op != nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return handshakeClosed
	default:
		return handshakeInvalid
	}
}
