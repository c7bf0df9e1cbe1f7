package http2

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// Conn is one HTTP/2 connection to an SSP.
//
//	         GOAWAY, or no stream numbers left      no exchange left
//	open ───────────────────────────────▶ draining ────────────────▶ closed
//	  │                                      │                          ▲
//	  └──────────────────────────────────────┴──────────────────────────┘
//	     Close, the peer's end or fault, a stuck write, an unanswered PING
//
// Open: Places is what the peer allows. Draining: Places is 0 and CloseReason
// is set; exchanges under way go on. Closed: exchanges have failed; what is
// left to be written (a GOAWAY that says why) may still be on its way.
type Conn struct {
	net    net.Conn
	socket net.Conn // what net stands on: closing it never blocks
	owner  upstream.Owner
	opts   Options
	// streamWindow is our receive window of a new stream.
	streamWindow int

	places atomic.Int32  // what Places returns
	reason atomic.Uint32 // upstream.CloseReason; written under mu

	in    reader // only the reader's goroutine
	reads reads

	mu sync.Mutex // guards the fields below

	closed       bool  // no exchange is there, and none begins
	closeError   error // why: what exchanges on a closed connection fail with
	socketClosed bool  // the socket is closed, or about to be by who set this

	streams table
	free    []*stream // to be used again
	encoder http2codec.Encoder

	out        writer
	sendBuffer sendBuffer
	uploads    uploads

	peer       peerSettings
	sendWindow int64 // of the connection
	maxCredit  int64 // the largest stream.credit since it was last worked out
	recvOwed   int   // what we have taken and not yet given back to our window

	// goneAbove is the last stream that a GOAWAY left, noLimit before the first.
	lastProcessed uint32
	// What the peer's GOAWAY means for HTTP/2; see breach.
	demote, refuses bool
	flood           http2codec.Flood
	resets          resets
	deadlines       deadlines

	// What unlock has to do.
	mustCloseSocket bool
	changed         bool
	freed           []time.Duration
}

var _ upstream.Conn = (*Conn)(nil)

// New starts HTTP/2 on conn, which is a *tls.Conn that has negotiated h2, or
// cleartext to a peer that is known to speak it. Close closes conn; where New
// returns an error, the caller does.
//
// It does not wait for the peer's settings: until they come, as many streams
// are opened as RFC 9113, section 6.5.2, advises at least, 100.
func New(conn net.Conn, owner upstream.Owner, opts Options) (*Conn, error) {
	if t, ok := conn.(*tls.Conn); ok {
		if err := checkTLS(t.ConnectionState()); err != nil {
			return nil, err
		}
	}
	c := newConn(conn, owner, opts.withDefaults())
	go c.read()
	return c, nil
}

func newConn(conn net.Conn, owner upstream.Owner, opts Options) *Conn {
	c := &Conn{
		net: conn, socket: bottom(conn), owner: owner, opts: opts,
		streamWindow:  streamWindow(opts.MaxResponseBytes),
		streams:       newTable(opts.MaxStreams),
		encoder:       http2codec.NewEncoder(),
		peer:          defaultPeerSettings,
		sendBuffer:    newSendBuffer(bottom(conn)),
		sendWindow:    http2codec.InitialWindow,
		lastProcessed: http2codec.NoLimit,
		deadlines:     deadlines{hasUnread: unreadOn(conn)},
	}
	c.in.init(opts)
	c.places.Store(int32(c.placesLocked()))
	c.out.buf = c.appendPreface(c.out.buf)
	return c
}

func checkTLS(s tls.ConnectionState) error {
	switch {
	case s.NegotiatedProtocol != h2.NextProtoTLS:
		return &upstream.Error{Outcome: upstream.TLSFailed, Progress: upstream.NotSent, RefusesHTTP2: true,
			Detail: "the SSP did not agree to HTTP/2; see protocol"}
	case s.Version < tls.VersionTLS12: // RFC 9113, section 9.2
		return &upstream.Error{Outcome: upstream.TLSFailed, Progress: upstream.NotSent, RefusesHTTP2: true,
			Detail: "HTTP/2 needs TLS 1.2 or later"}
	}
	return nil
}

// Protocol returns upstream.HTTP2.
func (c *Conn) Protocol() upstream.Protocol { return upstream.HTTP2 }

// Places implements upstream.Conn.
func (c *Conn) Places() int { return int(c.places.Load()) }

// CloseReason implements upstream.Conn.
func (c *Conn) CloseReason() upstream.CloseReason { return upstream.CloseReason(c.reason.Load()) }

// Idle implements upstream.Conn. The reader knows at once what comes, so there
// is nothing to look at.
func (c *Conn) Idle() bool { return c.CloseReason() == upstream.NotClosed }

// Close implements upstream.Conn. Places of abandoned exchanges that are still
// in use are freed by the reader's goroutine, not by Close.
func (c *Conn) Close(r upstream.CloseReason) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closeLocked(r, &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed,
		Detail: "the HTTP/2 connection was closed: " + r.String()})
	c.changed = false
	if !c.out.writing && c.sendBuffer.fits(len(c.out.buf)) {
		// Nothing can block: say goodbye.
		c.out.buf = http2codec.AppendGoAway(c.out.buf, h2.ErrCodeNo, "")
		c.flush(nil, nil)
		return
	}
	c.closeSocketLocked()
	c.unlock()
}

// limitLocked is what Places should be.
func (c *Conn) placesLocked() int {
	if c.CloseReason() != upstream.NotClosed {
		return 0
	}
	return int(min(uint32(c.opts.MaxStreams), c.peer.maxStreams))
}

// updateLocked makes Places what it should be.
func (c *Conn) updatePlacesLocked() {
	if n := int32(c.placesLocked()); c.places.Load() != n {
		c.places.Store(n)
		c.changed = true
	}
}

// drainLocked makes the connection take no more requests, for r, and closes it
// if there are none. The first reason stays.
func (c *Conn) drainLocked(r upstream.CloseReason) {
	if c.CloseReason() == upstream.NotClosed {
		c.reason.Store(uint32(r))
		c.changed = true
		c.updatePlacesLocked()
	}
	c.closeIfDrainedLocked()
}

// drainedLocked closes a draining connection on which nothing is left.
func (c *Conn) closeIfDrainedLocked() {
	if c.closed || c.CloseReason() == upstream.NotClosed || c.streams.active > 0 {
		return
	}
	c.closeLocked(c.CloseReason(), errDraining)
	c.out.buf = http2codec.AppendGoAway(c.out.buf, h2.ErrCodeNo, "")
}

// shutLocked ends the connection for r: exchanges on it fail with cause. The
// socket stays for what is still to be written: flush closes it then, unless
// hangUpLocked does at once.
func (c *Conn) closeLocked(r upstream.CloseReason, cause *upstream.Error) {
	if c.closed {
		return
	}
	c.closed, c.closeError = true, cause
	if c.CloseReason() == upstream.NotClosed {
		c.reason.Store(uint32(r))
		c.changed = true
	}
	c.updatePlacesLocked()
	c.deadlines.stop()
	// What was not handed to the socket counts as not sent below, so it must not
	// follow. A GOAWAY may.
	c.out.buf = c.out.buf[:0]
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		if s.start >= c.out.handed && cause.Progress == upstream.MaybeProcessed {
			unsent := *cause
			unsent.Progress = upstream.NotSent
			c.failLocked(s, &unsent)
			continue
		}
		c.failLocked(s, cause)
	}
}

// hangUpLocked makes unlock close the socket, whatever is still to be written.
func (c *Conn) closeSocketLocked() {
	if !c.socketClosed {
		c.socketClosed, c.mustCloseSocket, c.out.buf = true, true, nil
	}
}

// unlock unlocks mu, and then does what must not be done under it: closes the
// socket, and tells the owner what happened.
func (c *Conn) unlock() {
	if !c.changed && len(c.freed) == 0 && !c.mustCloseSocket {
		c.mu.Unlock()
		return
	}
	changed, freed, hangUp := c.changed, c.freed, c.mustCloseSocket
	c.changed, c.freed, c.mustCloseSocket = false, nil, false
	c.mu.Unlock()
	if hangUp {
		c.socket.Close() //nolint:errcheck // nothing is left to be done about it
	}
	for _, held := range freed {
		c.owner.Freed(held)
	}
	if changed {
		c.owner.Changed()
	}
}
