package http2codec

import (
	"time"

	h2 "golang.org/x/net/http2"
)

// Reader reads frames, on either side of a connection. Only the goroutine that reads from the connection uses it.
type Reader struct {
	Decoder   Decoder
	Fragments Fragments

	settled bool      // the peer's first SETTINGS have arrived
	now     time.Time // what Clock returns for the current read; zero until Clock is called
}

// NewReader returns a reader. maxHeaderList is the limit on header lists that adbuffer announces; see MaxBlock.
func NewReader(maxHeaderList int) Reader {
	return Reader{Decoder: NewDecoder(), Fragments: Fragments{Limit: MaxBlock(maxHeaderList)}}
}

// Next parses the frame at the start of b. It checks the frame's size, and whether the frame is allowed on its stream and
// at this point of the connection. n is the length of the frame, or 0 if b does not hold the whole frame. An error is a
// connection error (RFC 9113, section 5.4.1).
func (r *Reader) Next(b []byte) (f Frame, n int, err *Error) {
	f, n, size := ParseFrame(b)
	switch {
	case size > MaxFrameSize:
		return f, 0, FrameSizeError("a frame larger than SETTINGS_MAX_FRAME_SIZE")
	case n == 0:
		return f, 0, nil
	case !r.settled && (f.Kind != h2.FrameSettings || f.Flags.Has(h2.FlagSettingsAck)): // RFC 9113, section 3.4
		return f, 0, ProtocolError("the first frame is not SETTINGS")
	}
	r.settled = true
	return f, n, r.Fragments.check(f)
}

// Settled reports whether the peer's first SETTINGS have arrived.
func (r *Reader) Settled() bool { return r.settled }

// Arrived must be called when a read from the connection has returned, before the frames of the read are handled.
func (r *Reader) Arrived() { r.now = time.Time{} }

// Clock returns the time at which the current read is handled. The first call after Arrived calls time.Now; all further
// calls for frames of the same read return that time.
func (r *Reader) Clock() time.Time {
	if r.now.IsZero() {
		r.now = time.Now()
	}
	return r.now
}
