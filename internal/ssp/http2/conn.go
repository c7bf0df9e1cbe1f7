package http2

import (
	"cmp"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
	"adbuffer/internal/wire/socket"

	h2 "golang.org/x/net/http2"
)

// Conn is one HTTP/2 connection to an SSP.
//
//	         GOAWAY, or no stream numbers left      no exchange left
//	open ───────────────────────────────▶ draining ────────────────▶ closed
//	  │                                      │                          ▲
//	  └──────────────────────────────────────┴──────────────────────────┘
//	     Close, EOF, a violation by the peer, a stuck write, a PING without ACK
//
// Open: Places is what the peer and Options.MaxStreams allow. Draining: Places is 0 and CloseReason is
// set; current exchanges continue. A write that fails because the peer has closed also begins draining:
// frames that the peer sent before may be unread. Closed: all exchanges have failed or ended; a last
// GOAWAY may still be on its way.
type Conn struct {
	net    net.Conn
	socket kernelSocket // below net
	owner  exchange.Owner
	opts   Options
	// streamWindow is the receive window of a new stream.
	streamWindow int

	places atomic.Int32  // the value of Places
	reason atomic.Uint32 // exchange.CloseReason; written under mu

	in    reader // used only by the reader's goroutine
	reads reads

	mu sync.Mutex // guards the fields below

	closed       bool // no exchange runs, and none begins
	socketClosed bool // the socket is closed, or the goroutine that set this field is about to close it

	streams table
	free    []*stream // for reuse
	encoder http2codec.Encoder

	out        writer
	sendBuffer sendBuffer
	uploads    uploads

	peer     http2codec.PeerSettings
	windows  http2codec.SendWindows
	received http2codec.ReceiveWindow

	// lastProcessed is the last stream in the peer's GOAWAY, NoLimit before the first GOAWAY.
	lastProcessed uint32
	// What the peer's GOAWAY means for HTTP/2; see classify.
	demote, refuses bool
	goAwayCode      h2.ErrCode // of the peer's GOAWAY
	// endCounted says that an exchange failed whose failure stands for the end of the connection.
	endCounted bool
	flood      http2codec.Flood
	resets     resets
	deadlines  deadlines

	// Work for unlock.
	mustCloseSocket bool
	changed         bool
	freed           []place
}

var _ exchange.Conn = (*Conn)(nil)

// New starts HTTP/2 on conn: a TLS connection on sock that has negotiated h2, or sock itself for a
// peer with prior knowledge of HTTP/2. Close closes conn.
//
// New does not wait for the peer's settings. Until they arrive, the connection opens up to 100
// streams, the minimum that RFC 9113, section 6.5.2, advises peers to allow.
func New(conn net.Conn, sock *socket.Conn, owner exchange.Owner, opts Options) *Conn {
	c := newConn(conn, sock, owner, opts.withDefaults())
	go c.read()
	return c
}

func newConn(conn net.Conn, sock kernelSocket, owner exchange.Owner, opts Options) *Conn {
	c := &Conn{
		net: conn, socket: sock, owner: owner, opts: opts,
		streamWindow:  streamWindow(opts.MaxResponseBytes),
		streams:       newTable(opts.MaxStreams),
		encoder:       http2codec.NewEncoder(),
		peer:          http2codec.NewPeerSettings(),
		windows:       http2codec.NewSendWindows(),
		received:      http2codec.NewReceiveWindow(connWindow),
		lastProcessed: http2codec.NoLimit,
	}
	c.deadlines.alarm.Ring = c.expire
	c.sendBuffer.size = uint64(sock.SendBuffer()) / 2
	sock.OnWait(nil, c.writeBy)
	c.in.init(opts)
	c.places.Store(int32(c.placesLocked()))
	c.out.Frames = c.appendPreface(c.out.Frames)
	return c
}

// kernelSocket has the methods of socket.Conn that a connection uses.
type kernelSocket interface {
	Close() error // never blocks
	SendBuffer() int
	HasInput() bool
	OnWait(read, write func() time.Time)
}

// Protocol returns exchange.HTTP2.
func (c *Conn) Protocol() exchange.Protocol { return exchange.HTTP2 }

// Places implements exchange.Conn.
func (c *Conn) Places() int { return int(c.places.Load()) }

// CloseReason implements exchange.Conn.
func (c *Conn) CloseReason() exchange.CloseReason { return exchange.CloseReason(c.reason.Load()) }

// IdleLimit implements exchange.Conn. HTTP/2 has no Keep-Alive.
func (c *Conn) IdleLimit() time.Duration { return exchange.NoIdleLimit }

// Idle implements exchange.Conn. The reader notices every change at once, so nothing is checked
// here.
func (c *Conn) Idle() bool { return c.CloseReason() == exchange.NotClosed }

// Close implements exchange.Conn. Places that abandoned exchanges still occupy are freed later, when the
// reader's goroutine ends.
func (c *Conn) Close(r exchange.CloseReason) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closeLocked(r, exchange.Errorf(exchange.ConnLost, exchange.MaybeProcessed, "the HTTP/2 connection was closed: %v", r))
	c.changed = false
	if !c.out.Writing && c.sendBuffer.fits(len(c.out.Frames)) {
		// The write cannot block, so GOAWAY is sent.
		c.out.Frames = http2codec.AppendGoAway(c.out.Frames, 0, h2.ErrCodeNo, "")
		c.unlockAndWrite(nil, nil)
		return
	}
	c.closeSocketLocked()
	c.unlock()
}

// placesLocked computes the value of Places.
func (c *Conn) placesLocked() int {
	if c.CloseReason() != exchange.NotClosed {
		return 0
	}
	return int(min(uint32(c.opts.MaxStreams), c.peer.MaxStreams))
}

// updatePlacesLocked stores the value of Places.
func (c *Conn) updatePlacesLocked() {
	if n := int32(c.placesLocked()); c.places.Load() != n {
		c.places.Store(n)
		c.changed = true
	}
}

// drainLocked makes the connection refuse new requests, and closes it if no exchange runs. r
// becomes the close reason if none is set.
func (c *Conn) drainLocked(r exchange.CloseReason) {
	if c.CloseReason() == exchange.NotClosed {
		c.reason.Store(uint32(r))
		c.changed = true
		c.updatePlacesLocked()
	}
	c.closeIfDrainedLocked()
}

// closeIfDrainedLocked closes a draining connection without exchanges.
func (c *Conn) closeIfDrainedLocked() {
	if c.closed || c.CloseReason() == exchange.NotClosed || c.streams.active > 0 {
		return
	}
	c.closeLocked(c.CloseReason(), errDraining)
	c.out.Frames = http2codec.AppendGoAway(c.out.Frames, 0, h2.ErrCodeNo, "")
}

// closeLocked closes the connection for r; its exchanges fail with cause. The socket stays open until unlockAndWrite
// has written the bytes in the buffer, unless closeSocketLocked closes it at once.
func (c *Conn) closeLocked(r exchange.CloseReason, cause *exchange.Error) {
	if c.closed {
		return
	}
	c.closed = true
	if c.CloseReason() == exchange.NotClosed {
		c.reason.Store(uint32(r))
		c.changed = true
	}
	c.updatePlacesLocked()
	c.deadlines.alarm.Stop()
	// Requests whose bytes were not passed to the socket count as not sent below, so their bytes must never be
	// written. Only a GOAWAY may still be written.
	c.out.Frames = c.out.Frames[:0]
	stands := c.standsForEndLocked()
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		err := cause
		if s.start >= c.out.Handed && cause.Progress == exchange.MaybeProcessed {
			unsent := *cause
			unsent.Progress = exchange.NotSent
			err = &unsent
		} else if c.goAwayCode != h2.ErrCodeNo && isolatedForSize(s.ex) {
			err = largeHeadRefused(&s.ex.Request, "ended its HTTP/2 connection", c.goAwayCode)
		}
		if s != stands {
			err = err.AsCollateral()
		}
		c.failLocked(s, err)
	}
}

// standsForEndLocked returns the stream whose failure stands for the end of the connection. The end counts as one
// failure of the SSP, however many exchanges fail. It is the newest stream whose request was sent, since that request
// may be the reason for the end, or else the newest stream. If it returns a stream, it sets
// endCounted. It returns nil if an earlier failure already stands for the end.
func (c *Conn) standsForEndLocked() *stream {
	if c.endCounted {
		return nil
	}
	var newest, sent *stream
	for i := range c.streams.slots {
		s := c.streams.slots[i].stream
		if s == nil {
			continue
		}
		if newest == nil || s.id > newest.id {
			newest = s
		}
		if s.start < c.out.Handed && (sent == nil || s.id > sent.id) {
			sent = s
		}
	}
	c.endCounted = newest != nil
	return cmp.Or(sent, newest)
}

// closeSocketLocked makes unlock close the socket, even if bytes are in the buffer.
func (c *Conn) closeSocketLocked() {
	if !c.socketClosed {
		c.socketClosed, c.mustCloseSocket, c.out.Frames = true, true, nil
	}
}

// unlock unlocks mu, and then does the work that is not allowed under it: it closes the socket, and
// reports changes to the owner.
func (c *Conn) unlock() {
	if !c.changed && len(c.freed) == 0 && !c.mustCloseSocket {
		c.mu.Unlock()
		return
	}
	changed, freed, hangUp := c.changed, c.freed, c.mustCloseSocket
	c.changed, c.freed, c.mustCloseSocket = false, nil, false
	c.mu.Unlock()
	if hangUp {
		c.socket.Close()
	}
	for _, p := range freed {
		c.owner.Freed(time.Since(p.acquired), p.ticket)
	}
	if changed {
		c.owner.Changed()
	}
}
