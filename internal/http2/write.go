package http2

import (
	"errors"
	"os"
	"runtime"
	"time"

	"adbuffer/internal/upstream"
)

// writer is the buffer into which all goroutines put their frames, and what is
// known of its way to the peer. Conn.mu guards it.
type writer struct {
	buf     []byte
	spare   []byte // what buf will be while its bytes are being written
	writing bool   // somebody writes; who puts frames into buf need not care
	handed  uint64 // bytes that were handed to the socket
	failed  bool   // a write has failed: nothing is written any more
}

// maxBuffered is how many bytes wait to be written at most before bodies do not
// add to them. Heads and control frames may: streams bound the first, flood the
// second.
const maxBuffered = 256 << 10

// maxKeptBuffer is the largest buffer that an idle connection keeps.
const maxKeptBuffer = 64 << 10

// maxRounds is how many writes one caller makes for all.
const maxRounds = 64

// flush writes what stands in the buffer, unless somebody is doing so. mu is
// held, and unlocked on return.
//
// A caller that has a request under way passes it, as s and ex. It lets every
// goroutine that is ready put its frames beside its own, and then writes all in
// one write: 64 callers on two connections send two or three requests at once
// so, and one that is alone loses nothing. It goes on writing what others add while it
// writes, as long as it would have nothing to do but wait for its answer.
// Others, the reader above all, write once.
func (c *Conn) flush(s *stream, ex *upstream.Exchange) {
	if c.out.failed {
		c.out.buf = c.out.buf[:0]
		if c.closed {
			c.closeSocketLocked()
		}
	}
	if c.out.writing || c.socketClosed || c.out.failed || len(c.out.buf) == 0 && !c.closed {
		c.unlock()
		return
	}
	c.out.writing = true
	if s != nil {
		c.unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for n := 0; c.writableLocked(); n++ {
		goOn := n == 0 || s != nil && s.ex == ex && n < maxRounds
		if !goOn || !c.sendBuffer.fits(len(c.out.buf)) {
			c.unlock()
			go c.writeAll()
			return
		}
		c.writeLocked()
	}
	c.endFlushLocked()
}

// writeAll goes on where flush stopped. It may wait for the peer, but not
// longer than WriteTimeout for each write. flush starts it; it ends when the
// buffer is empty or the socket closed.
func (c *Conn) writeAll() {
	c.mu.Lock()
	for c.writableLocked() {
		// Not I/O: it does not block.
		c.net.SetWriteDeadline(time.Now().Add(c.opts.WriteTimeout)) //nolint:errcheck // then the write fails
		c.writeLocked()
	}
	c.net.SetWriteDeadline(time.Time{}) //nolint:errcheck // then the next write fails
	c.endFlushLocked()
}

func (c *Conn) writableLocked() bool {
	return len(c.out.buf) > 0 && !c.socketClosed && !c.out.failed
}

// writeLocked writes the buffer once. mu is unlocked meanwhile.
func (c *Conn) writeLocked() {
	b := c.out.buf
	c.out.buf, c.out.spare = c.out.spare[:0], nil
	c.out.handed += uint64(len(b))
	c.sendBuffer.spent += cost(len(b))
	c.wakeNextLocked() // there is room in the buffer again
	c.unlock()
	n, err := c.net.Write(b)
	c.mu.Lock()
	if cap(b) <= maxKeptBuffer {
		c.out.spare = b[:0]
	}
	if err != nil {
		c.out.handed -= uint64(len(b) - n)
		c.writeFailedLocked(err)
	}
}

// writtenLocked ends a flush. A connection that was closed meanwhile, and whose
// last words are written, loses its socket now.
func (c *Conn) endFlushLocked() {
	c.out.writing = false
	if c.closed && !c.socketClosed {
		c.socketClosed = true
		c.unlock()
		c.net.Close() //nolint:errcheck // nothing is left to be done about it
		return
	}
	c.unlock()
}

// writeFailedLocked ends the connection if the peer is stuck. Otherwise the peer
// has closed, and what it said before that, a GOAWAY maybe, is still to be read:
// the reader will come to the end by itself. Requests that were not written do
// not wait for that.
func (c *Conn) writeFailedLocked(err error) {
	c.out.failed, c.out.buf = true, nil
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.closeLocked(upstream.ClosedTimeout, &upstream.Error{Outcome: upstream.ConnLost, Progress: upstream.MaybeProcessed,
			Detail: "the SSP has stopped reading from the HTTP/2 connection", Err: err})
		c.closeSocketLocked()
		return
	}
	c.net.SetReadDeadline(time.Now().Add(c.opts.WriteTimeout)) //nolint:errcheck // a closed socket ends the reader too
	c.drainLocked(upstream.ClosedByPeer)
	for i := range c.streams.slots {
		if s := c.streams.slots[i].stream; s != nil && s.start >= c.out.handed {
			c.failLocked(s, errClosed)
		}
	}
	if c.closed {
		c.closeSocketLocked()
	}
}
