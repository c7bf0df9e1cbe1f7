package http2

import (
	"errors"
	"os"
	"runtime"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
)

// writer holds the frames to write. Conn.mu guards it.
type writer struct {
	http2codec.WriteBuffer
	// until is when the current write must end; zero until writeBy sets it.
	until time.Time
}

// maxBuffered is how many bytes may wait in the buffer before bodies stop adding to them. Headers
// and control frames may exceed it: maxUnwritten bounds headers, flood bounds control frames.
const maxBuffered = 256 << 10

// maxUnwritten bounds the bytes of requests that wait during a write. More bytes gather only if the peer does not
// read, since abandoned requests stay in the buffer.
const maxUnwritten = 1 << 20

// maxRounds is how many writes one caller does for all callers.
const maxRounds = 64

// unlockAndWrite unlocks mu, and writes the buffer unless another goroutine does.
//
// A caller with a current request passes it as s and ex. Its goroutine first lets every ready
// goroutine append its frames, and then writes all of them at once. So 64 callers on two
// connections send two or three requests in each write, and a lone caller loses nothing. While its
// response is outstanding, it also writes frames that are appended later. All other callers, mainly
// the reader, write once.
func (c *Conn) unlockAndWrite(s *stream, ex *exchange.Exchange) {
	if c.out.Failed {
		c.out.Frames = c.out.Frames[:0]
		if c.closed {
			c.closeSocketLocked()
		}
	}
	if c.out.Writing || c.socketClosed || c.out.Failed || len(c.out.Frames) == 0 && !c.closed {
		c.unlock()
		return
	}
	c.out.Writing = true
	var until time.Time
	if s != nil {
		until = ex.Deadline
		c.unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for n := 0; c.hasToWriteLocked(); n++ {
		writeMore := n == 0 || s != nil && s.ex == ex && n < maxRounds
		if !writeMore || !c.sendBuffer.fits(len(c.out.Frames)) {
			c.unlock()
			go c.writeAll()
			return
		}
		b := c.takeLocked(until)
		c.unlock()
		written, err := c.net.Write(b)
		c.mu.Lock()
		c.writtenLocked(b, written, err)
	}
	c.unlockAndEndWriting()
}

// writeAll continues after unlockAndWrite. It may wait for the peer, at most WriteTimeout for each
// write. It ends when the buffer is empty or the socket is closed.
func (c *Conn) writeAll() {
	c.mu.Lock()
	for c.hasToWriteLocked() {
		b := c.takeLocked(time.Time{})
		c.unlock()
		written, err := c.net.Write(b)
		c.mu.Lock()
		c.writtenLocked(b, written, err)
	}
	c.unlockAndEndWriting()
}

// writeBy returns when a write that must wait for the peer fails: the connection then closes. A
// caller's own write was not expected to wait, so it waits until the caller's deadline at most.
func (c *Conn) writeBy() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.until.IsZero() {
		c.out.until = time.Now().Add(c.opts.WriteTimeout)
	}
	return c.out.until
}

func (c *Conn) hasToWriteLocked() bool {
	return c.out.Waits() && !c.socketClosed
}

// takeLocked takes the buffer for one write, which ends at until; zero means after WriteTimeout.
func (c *Conn) takeLocked(until time.Time) []byte {
	b := c.out.Take()
	c.out.until = until
	c.sendBuffer.spent += cost(len(b))
	c.sendBodiesLocked() // the buffer has space again
	return b
}

// writtenLocked records the result of a write of b.
func (c *Conn) writtenLocked(b []byte, n int, err error) {
	c.out.Written(b, n, err)
	if err != nil {
		c.writeFailedLocked(err)
	}
}

// unlockAndEndWriting unlocks mu after a goroutine's last write. If the connection was closed
// meanwhile, and its last frames are written, it closes the socket.
func (c *Conn) unlockAndEndWriting() {
	c.out.Writing = false
	last := c.closed && !c.socketClosed
	c.socketClosed = c.socketClosed || last
	c.unlock()
	if last {
		c.net.Close()
	}
}

// writeFailedLocked closes the connection if the peer is stuck. Otherwise the peer has closed, and
// its earlier frames, perhaps a GOAWAY, are still unread: the reader reads them and then the end.
// Unwritten requests do not wait for that.
func (c *Conn) writeFailedLocked(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.closeLocked(exchange.ClosedTimeout, &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed,
			Detail: "the SSP has stopped reading from the HTTP/2 connection", Err: err})
		c.closeSocketLocked()
		return
	}
	c.net.SetReadDeadline(time.Now().Add(c.opts.WriteTimeout))
	c.drainLocked(exchange.ClosedByPeer)
	stands := c.standsForEndLocked()
	if stands != nil && stands.start < c.out.Handed {
		c.endCounted = false // its failure follows, when the reader meets the end
	}
	for i := range c.streams.slots {
		switch s := c.streams.slots[i].stream; {
		case s == nil || s.start < c.out.Handed:
		case s == stands:
			c.failLocked(s, errClosed)
		default:
			c.failLocked(s, errClosedToo)
		}
	}
	if c.closed {
		c.closeSocketLocked()
	}
}
