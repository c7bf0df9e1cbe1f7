package http2

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"time"

	"adbuffer/internal/machine/alarm"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// reader is the state that only Serve's goroutine uses. It holds Conn.mu while it handles frames.
type reader struct {
	http2codec.Reader
	buf     *[]byte // (*buf)[r:w] was read and not handled yet; nil while idle
	r, w    int
	preface int       // bytes of the client's preface that have arrived
	partBy  time.Time // when a frame or header block that has begun to arrive must be complete
	block   http2codec.RequestBlock
}

func (in *reader) init(opts Options) {
	in.Reader = http2codec.NewReader(opts.MaxHeaderList)
	in.block.Limit = opts.MaxHeaderList
}

// Sizes of read buffers. A connection begins with a small buffer. If a frame does not fit into that, the connection
// gets a large buffer, which can hold a frame of any allowed size.
const (
	smallBuffer = 4 << 10
	largeBuffer = 32 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, largeBuffer); return &b }}
)

// room returns where the next bytes are written.
func (in *reader) room() []byte {
	switch {
	case in.buf == nil:
		in.buf = smallBuffers.Get().(*[]byte)
	case in.w == len(*in.buf) && in.r > 0:
		in.w = copy(*in.buf, (*in.buf)[in.r:in.w])
		in.r = 0
	}
	if in.w == len(*in.buf) { // a frame is longer than the buffer
		large := largeBuffers.Get().(*[]byte)
		copy(*large, (*in.buf)[:in.w])
		in.release()
		in.buf = large
	}
	return (*in.buf)[in.w:]
}

// free releases the buffer, which must be empty.
func (in *reader) free() {
	if in.buf != nil {
		in.release()
		in.buf, in.r, in.w = nil, 0, 0
	}
}

// consume drops n bytes that have been handled.
func (in *reader) consume(n int) {
	in.r += n
	if in.r == in.w {
		in.r, in.w = 0, 0
	}
}

// release releases the buffer for reuse, unless its length is not one of the usual lengths, as the buffer of Given
// may be.
func (in *reader) release() {
	switch len(*in.buf) {
	case smallBuffer:
		smallBuffers.Put(in.buf)
	case largeBuffer:
		largeBuffers.Put(in.buf)
	}
}

// partial reports whether a frame, a header block or the preface has begun and is not complete.
func (in *reader) partial() bool {
	return in.r < in.w || in.Fragments.ID != 0 || in.preface > 0 && in.preface < len(h2.ClientPreface)
}

// Given adds bytes that were read from the client before New was called. It must be called before
// Serve.
func (c *Conn) Given(b []byte) {
	buf := make([]byte, max(len(b), smallBuffer))
	c.in.buf, c.in.w = &buf, copy(buf, b)
}

// Serve reads and serves requests. It returns ErrIdle when the connection is idle. The Owner closes
// the connection after any other error.
func (c *Conn) Serve() error {
	var n int
	var readErr error
	for {
		if err := c.handle(n, readErr); err != nil {
			return err
		}
		// Workers run first: their responses join the buffer, and more requests arrive meanwhile.
		runtime.Gosched()
		n, readErr = c.rw.Read(c.in.room())
	}
}

// handle handles the n bytes and the error of a Read. It returns the error of Serve, or nil if Serve
// continues.
func (c *Conn) handle(n int, readErr error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = true
	err := c.handleReadLocked(n, readErr)
	for err == nil && len(c.out.Frames) > readPause && c.out.Writing { // until write_timeout at most
		c.written.Wait()
	}
	if err == nil && c.closed {
		err = c.err
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrIdle):
		c.freeLocked()
	default:
		if v, ok := errors.AsType[*http2codec.Error](err); ok {
			c.violatedLocked(v)
		}
		c.closeLocked(err)
		c.sendLocked()
		for c.out.Writing { // until write_timeout at most
			c.written.Wait()
		}
		c.releaseSentLocked()
		c.in.free()
	}
	c.serving = false
	return err
}

func (c *Conn) handleReadLocked(n int, readErr error) error {
	c.in.w += n
	c.in.Arrived()
	switch {
	case n > 0 || readErr == nil:
	case c.closed:
		return c.err
	case !errors.Is(readErr, os.ErrDeadlineExceeded):
		return readErr
	default:
		if err := c.silentLocked(); err != nil {
			return err
		}
	}
	if err := c.handleFramesLocked(); err != nil {
		return err
	}
	c.dispatchLocked()
	c.awaitBodiesLocked()
	c.sendLocked()
	return nil
}

// WaitUntil returns when a Read that has to wait must return. It is called on Serve's
// goroutine by such a Read. midRecord says that TLS has read a part of a record.
//
// unfinished says that the connection has no request, and waits for the client to complete something: its first
// header, or a frame or header block that has begun to arrive.
func (c *Conn) WaitUntil(midRecord bool) (by time.Time, unfinished bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	by = now.Add(c.opts.ParkAfter)
	unfinished = c.lastID == 0
	if c.in.partial() || midRecord {
		unfinished = unfinished || len(c.streams.open) == 0 && c.running == 0
		if c.in.partBy.IsZero() {
			read, _ := c.owner.Timeouts()
			c.in.partBy = now.Add(read)
		}
		if c.in.partBy.Before(by) {
			by = c.in.partBy
		}
		return by, unfinished
	}
	c.in.partBy = time.Time{}
	if len(c.streams.open) > 0 || c.running > 0 || c.drain.announced { // silentLocked would not park it
		return by, unfinished
	}
	if c.idleAt.IsZero() {
		c.idleAt = now
	}
	// PINGs do not change idleAt, so parkAt may have passed while the ACK of a PING is still to be written. Then the
	// Read waits for ParkAfter again: with parkAt, it would time out again and again.
	if parkAt := c.idleAt.Add(c.opts.ParkAfter); parkAt.After(now) || c.isIdleLocked() {
		return parkAt, unfinished
	}
	return by, unfinished
}

// silentLocked is called when a Read has timed out. It returns ErrIdle if the connection is idle, and errDone if the
// client is too slow.
func (c *Conn) silentLocked() error {
	by := c.in.partBy
	switch {
	case !by.IsZero() && !time.Now().Before(by):
		c.out.Frames = http2codec.AppendGoAway(c.out.Frames, c.lastID, h2.ErrCodeNo, "a frame did not arrive in time")
		return errDone
	case by.IsZero() && !c.idleAt.IsZero() && c.isIdleLocked() && !c.drain.announced: // a drain has a deadline of its own
		return ErrIdle
	}
	return nil
}

// freeLocked releases memory that an idle connection does not need.
func (c *Conn) freeLocked() {
	c.in.free()
	c.in.block.Free()
	c.in.Fragments.Free()
	c.in.Decoder.Shrink()
	c.encoder.Forget()
	c.stopWorkersLocked()
	c.out.Free()
	c.out.release = nil
	c.streams = table{forgotten: c.lastID}
	c.ready, c.fresh = nil, nil
	c.alarm.Stop()
	c.alarm = alarm.Alarm{}
}

// handleFramesLocked handles all frames that have arrived whole.
func (c *Conn) handleFramesLocked() error {
	in := &c.in
	if in.buf == nil {
		return nil
	}
	if err := in.readPreface(); err != nil {
		return err
	}
	for in.preface == len(h2.ClientPreface) {
		f, n, err := in.Next((*in.buf)[in.r:in.w])
		switch {
		case err != nil:
			return err
		case n == 0:
			return nil
		}
		in.consume(n)
		if err := c.handleFrameLocked(f); err != nil {
			return err // converted to error only here, since a nil *Error would be a non-nil error
		}
		if in.Fragments.ID == 0 {
			in.partBy = time.Time{}
		}
		if c.closed {
			return c.err
		}
	}
	return nil
}

// readPreface reads the client's preface: RFC 9113, section 3.4.
func (in *reader) readPreface() error {
	if in.preface == len(h2.ClientPreface) {
		return nil
	}
	b := (*in.buf)[in.r:in.w]
	rest := []byte(h2.ClientPreface)[in.preface:]
	n := min(len(b), len(rest))
	if !bytes.Equal(b[:n], rest[:n]) {
		return http2codec.ProtocolError("the connection does not begin with the preface of HTTP/2")
	}
	in.preface += n
	in.consume(n)
	return nil
}

func (c *Conn) handleFrameLocked(f http2codec.Frame) *http2codec.Error {
	switch f.Kind {
	case h2.FrameHeaders, h2.FrameContinuation:
		return c.onHeadersLocked(f)
	case h2.FrameData:
		return c.onDataLocked(f)
	case h2.FrameWindowUpdate:
		return c.onWindowUpdateLocked(f)
	case h2.FrameRSTStream:
		return c.onResetLocked(f)
	case h2.FrameSettings:
		return c.onSettingsLocked(f)
	case h2.FramePing:
		return c.onPingLocked(f)
	case h2.FramePriority:
		return c.onPriorityLocked(f)
	case h2.FramePushPromise:
		return http2codec.ProtocolError("PUSH_PROMISE from a client")
	}
	// A client that sends GOAWAY closes the connection itself. Unknown types are ignored: RFC 9113,
	// section 5.5.
	return c.flood.Idle()
}
