package http2codec

import (
	"encoding/binary"

	h2 "golang.org/x/net/http2"
)

// SendWindows say how many bytes of DATA the peer accepts: on the connection, and on each stream. A stream holds
// its own Credit. RFC 9113, section 6.9.
type SendWindows struct {
	Conn    int64 // of the connection
	Initial int64 // the peer's SETTINGS_INITIAL_WINDOW_SIZE

	// maxCredit is the largest Credit of a stream since the last call of Apply that asked for a visit. The Credit of
	// an open stream is at most this, or 0.
	maxCredit Credit
}

// Credit is by how much the window of a stream is larger than the initial window. A change of the initial window
// changes the windows of all streams by the same amount, and so no Credit: section 6.9.2.
type Credit int64

// NewSendWindows returns the windows before any SETTINGS frame.
func NewSendWindows() SendWindows { return SendWindows{Conn: InitialWindow, Initial: InitialWindow} }

// Apply applies the peer's SETTINGS_INITIAL_WINDOW_SIZE. Most changes concern no stream, since a stream counts its
// Credit. visit reports whether the caller must call Visit for each open stream, and then Visited: bodies wait for a
// larger window, which waiting says, or a window may overflow.
func (w *SendWindows) Apply(s *SettingsChange, waiting bool) (visit bool) {
	if !s.Has[h2.SettingInitialWindowSize] {
		return false
	}
	initial := int64(s.Value[h2.SettingInitialWindowSize])
	grew := initial > w.Initial
	w.Initial = initial
	if (!grew || !waiting) && !w.Overflows(w.maxCredit) {
		return false
	}
	w.maxCredit = 0
	return true
}

// Visit takes the Credit of an open stream into account, from which Visited finds out whether a window overflows.
func (w *SendWindows) Visit(c Credit) { w.maxCredit = max(w.maxCredit, c) }

// Visited ends a visit of n streams, whose cost f counts. It returns an error if a window overflows.
func (w *SendWindows) Visited(n int, f *Flood) *Error {
	if w.Overflows(w.maxCredit) {
		return FlowError("SETTINGS_INITIAL_WINDOW_SIZE makes a window overflow")
	}
	return f.Spend(n / StreamsPerFrame)
}

// StreamsPerFrame is how many streams can be visited at the cost of a frame.
const StreamsPerFrame = 64

// Of returns the window of a stream. It may be negative.
func (w *SendWindows) Of(c Credit) int64 { return w.Initial + int64(c) }

// Overflows reports whether the window of a stream is larger than MaxWindow.
func (w *SendWindows) Overflows(c Credit) bool { return w.Of(c) > MaxWindow }

// Sent takes n bytes of DATA on the stream of c from both windows.
func (w *SendWindows) Sent(c *Credit, n int) {
	w.Conn -= int64(n)
	*c -= Credit(n)
}

// IncrementOf returns the increment in the payload of a WINDOW_UPDATE.
func IncrementOf(f Frame) int64 { return int64(binary.BigEndian.Uint32(f.Payload) & MaxWindow) }

// Grow enlarges the connection's window by n, the increment of a WINDOW_UPDATE.
func (w *SendWindows) Grow(n int64) *Error {
	w.Conn += n
	switch {
	case n == 0:
		return ProtocolError("WINDOW_UPDATE by 0")
	case w.Conn > MaxWindow:
		return FlowError("WINDOW_UPDATE makes the connection's window overflow")
	}
	return nil
}

// GrowStream enlarges the window of the stream of c by n. Its error resets the stream.
func (w *SendWindows) GrowStream(c *Credit, n int64) *Error {
	*c += Credit(n)
	w.Visit(*c)
	switch {
	case n == 0:
		return ProtocolError("WINDOW_UPDATE by 0")
	case w.Overflows(*c):
		return FlowError("WINDOW_UPDATE makes the stream's window overflow")
	}
	return nil
}
