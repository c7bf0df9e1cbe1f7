package http2

import (
	"time"

	"adbuffer/internal/wire/http2codec"
)

// writer holds the frames to write, and the state of their writing. Conn.mu guards it.
type writer struct {
	http2codec.WriteBuffer
	// waitsSince is when the current write began to wait for the client. It is zero while none waits.
	waitsSince time.Time
	writingCap int // capacity of the buffer that is being written
	unsent     int // the sum of n over all calls of Owner.Unsent

	release []sent // streams whose responses are in the buffer, in their order
}

// sent is a stream whose response ends before offset at, counted as Handed is.
type sent struct {
	at     uint64
	stream *Stream
}

const (
	// maxBuffered is the buffer size at which responses stop adding to it. The rest of a response
	// stays in its own memory, which counts in Conn.held until the whole response is written.
	maxBuffered = 64 << 10
	// readPause is the buffer size at which the reader stops handling frames, since the client does
	// not read. Beyond maxBuffered no response adds to the buffer, but frames such as SETTINGS and
	// PING ACKs, WINDOW_UPDATE and RST_STREAM do.
	readPause = maxBuffered + 16<<10
)

// startWritingLocked reports whether the caller must write the buffer, because the buffer holds bytes and no
// goroutine is writing. If so, the caller must unlock mu and call write.
func (c *Conn) startWritingLocked() bool {
	if c.out.Writing {
		c.countUnsentLocked()
	}
	if c.out.Writing || !c.out.Waits() {
		return false
	}
	c.out.Writing = true
	return true
}

// sendLocked makes another goroutine write the buffer, unless one already does. It is for callers that
// must not wait for the client, as a write may.
func (c *Conn) sendLocked() {
	if c.startWritingLocked() {
		go c.write()
	}
}

// write writes until the buffer is empty. Its caller has called startWritingLocked, and does not hold
// mu.
func (c *Conn) write() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.out.Waits() {
		b := c.out.Take()
		c.out.writingCap = cap(b)
		c.mu.Unlock()
		n, err := c.rw.Write(b)
		c.mu.Lock()
		c.out.waitsSince, c.out.writingCap = time.Time{}, 0
		c.countUnsentLocked()
		c.out.Written(b, n, err)
		if err != nil {
			c.writeFailedLocked(err)
			break
		}
		c.writtenLocked()
		c.pumpLocked()
		c.written.Broadcast()
	}
	c.out.Writing = false
	c.written.Broadcast()
	c.drainedLocked()
}

// countUnsentLocked tells the owner how many bytes the buffers hold. It counts them only while a write
// waits for the client, so that responses which the socket takes at once cost nothing.
func (c *Conn) countUnsentLocked() {
	n := 0
	if !c.out.waitsSince.IsZero() {
		n = cap(c.out.Frames) + c.out.writingCap
	}
	if n != c.out.unsent {
		c.owner.Unsent(n - c.out.unsent)
		c.out.unsent = n
	}
}

// writtenLocked releases the streams whose responses have been written. No write may be running.
func (c *Conn) writtenLocked() {
	n := 0
	for n < len(c.out.release) && c.out.release[n].at <= c.out.Handed {
		c.unholdLocked(c.out.release[n].stream)
		c.out.release[n] = sent{}
		n++
	}
	c.out.release = append(c.out.release[:0], c.out.release[n:]...)
}

// writeFailedLocked closes the connection: its client has closed it, or does not read.
func (c *Conn) writeFailedLocked(err error) {
	c.closeLocked(err)
	c.releaseSentLocked()
	c.owner.HangUp()
}

// releaseSentLocked releases streams whose responses are not going to be written.
func (c *Conn) releaseSentLocked() {
	for _, s := range c.out.release {
		c.unholdLocked(s.stream)
	}
	c.out.release = nil
}
