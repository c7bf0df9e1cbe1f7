package http2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// reader holds the fields that only the reader's goroutine uses.
type reader struct {
	http2codec.Reader
	buf   []byte // buf[r:w] was read and not handled yet
	r, w  int
	block http2codec.ResponseBlock
}

// reads counts the reads of the socket. The reader's goroutine counts; all goroutines may read the
// counters.
type reads struct{ begun, done atomic.Uint64 }

// handling reports whether the reader is handling the bytes of its last read.
func (r *reads) handling() bool { return r.done.Load() == r.begun.Load() }

// readBuffer is the size of the read buffer. It holds at least one frame of the largest size, and
// under load many frames.
const readBuffer = 64 << 10

func (in *reader) init(opts Options) {
	in.buf = make([]byte, readBuffer)
	in.Reader = http2codec.NewReader(opts.MaxResponseHeaderBytes)
	in.block.Limit, in.block.MaxFields = opts.MaxResponseHeaderBytes, exchange.MaxResponseFields
}

// read is the reader's goroutine; it runs until the socket is closed.
func (c *Conn) read() {
	c.mu.Lock()
	c.unlockAndWrite(nil, nil) // the preface
	err := c.readFrames()
	c.mu.Lock()
	var violation *http2codec.Error
	if errors.As(err, &violation) {
		c.violationLocked(violation)
	} else {
		c.socketEndedLocked(err)
	}
	c.resets.freeAll(c)
	c.unlockAndWrite(nil, nil)
}

// readFrames handles frames until one violates a rule or the socket ends.
func (c *Conn) readFrames() error {
	in := &c.in
	for {
		for {
			b := in.buf[in.r:in.w]
			if !in.Settled() && bytes.HasPrefix(b, []byte("HTTP/1")) {
				return http2codec.ProtocolError("the peer responded in HTTP/1; see protocol")
			}
			f, n, err := in.Next(b)
			if err == nil && n > 0 {
				in.r += n
				err = c.handle(f)
			}
			if err != nil {
				return err
			}
			if n == 0 {
				break
			}
		}
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
		// Callers whose responses have arrived run first. Their next requests join the bytes in the
		// buffer, and meanwhile more responses arrive.
		runtime.Gosched()
		c.mu.Lock()
		c.unlockAndWrite(nil, nil)
		c.reads.begun.Add(1)
		n, err := c.net.Read(in.buf[in.w:])
		if n == 0 && err != nil {
			return err
		}
		in.w += n
		in.Arrived()
		c.reads.done.Add(1)
	}
}

func (c *Conn) handle(f http2codec.Frame) *http2codec.Error {
	var last bool
	if f.Kind == h2.FrameHeaders || f.Kind == h2.FrameContinuation {
		block, whole, err := c.in.Fragments.Take(f)
		if err != nil || !whole {
			return err
		}
		// Callers need mu while the block is decoded.
		c.in.block.Reset()
		if err := c.in.Decoder.Decode(block.Bytes, &c.in.block); err != nil {
			return err
		}
		f.Kind, last = h2.FrameHeaders, block.Last
	}
	c.mu.Lock()
	defer c.unlock()
	switch f.Kind {
	case h2.FrameHeaders:
		return c.onBlockLocked(f, last)
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
	case h2.FrameGoAway:
		return c.onGoAwayLocked(f)
	case h2.FramePushPromise:
		return http2codec.ProtocolError("PUSH_PROMISE although SETTINGS_ENABLE_PUSH is 0")
	case h2.FramePriority: // deprecated: RFC 9113, section 6.3
		if len(f.Payload) != 5 {
			return http2codec.FrameSizeError("PRIORITY of a wrong size")
		}
	}
	return c.flood.Idle() // of an unknown type: RFC 9113, section 5.5
}

// onClosedStreamLocked handles a frame for a stream that is not open. A frame for a stream that was
// never opened is a violation; RFC 9113, section 5.1. After a reset by adbuffer, frames may arrive
// for a while. After a complete response, HEADERS and DATA are an error of that stream alone.
func (c *Conn) onClosedStreamLocked(f http2codec.Frame) *http2codec.Error {
	if c.streams.idle(f.ID) {
		return http2codec.ProtocolError(f.Kind.String() + " on a stream that was never opened")
	}
	switch ended := c.streams.slot(f.ID).completed == f.ID; {
	case ended && (f.Kind == h2.FrameHeaders || f.Kind == h2.FrameData):
		c.out.Frames = http2codec.AppendReset(c.out.Frames, f.ID, h2.ErrCodeStreamClosed)
	case f.Kind == h2.FrameData && len(f.Payload) > 0:
		return c.flood.Waste(len(f.Payload))
	}
	return c.flood.Idle()
}

// violationLocked closes the connection because of the peer's violation, and reports it in GOAWAY.
func (c *Conn) violationLocked(violation *http2codec.Error) {
	if c.closed {
		return
	}
	c.closeLocked(exchange.ClosedError, &exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.MaybeProcessed,
		Demote: true, Err: violation})
	c.out.Frames = http2codec.AppendGoAway(c.out.Frames, 0, violation.Code, violation.Text)
}

// socketEndedLocked closes the connection after its socket was closed or failed.
func (c *Conn) socketEndedLocked(err error) {
	reason := exchange.ClosedError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed) {
		reason = exchange.ClosedByPeer
	}
	c.closeLocked(reason, &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed,
		Demote: c.demote, RefusesHTTP2: c.refuses, Detail: "the HTTP/2 connection was closed before the response", Err: err})
	c.closeSocketLocked()
}
