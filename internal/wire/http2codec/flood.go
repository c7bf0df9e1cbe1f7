package http2codec

import (
	"fmt"
	"time"
)

// Flood limits the frames of a peer that cost work and advance no exchange: PING, SETTINGS, DATA without content,
// WINDOW_UPDATE for which no stream waits, frames for ended streams, and frames of unknown types. A few such frames
// are harmless, many are an attack. RFC 9113, section 10.5.
//
// Frames that a peer sends because it has received DATA are measured against the DATA that adbuffer has sent: see
// Sent and Caused.
//
// The lock of its HTTP/2 connection guards it.
type Flood struct {
	Left  int       // how many such frames are allowed until the next refill
	since time.Time // when Left was last refilled
	// Late is how many bytes of DATA may still arrive for streams that have ended: the sum of their windows at the
	// end.
	Late int
	// caused is how many frames the peer may still send because of the DATA that it has received.
	caused int
}

const (
	// FloodBudget is how many frames that advance no exchange are allowed per FloodInterval, in addition to the frames
	// that exchanges earn.
	FloodBudget   = 1000
	FloodInterval = time.Second
	// floodEarned is how many frames an exchange earns: a peer may send PINGs and WINDOW_UPDATEs
	// for each exchange.
	floodEarned = 10
	// causedByData is how many WINDOW_UPDATEs and late RST_STREAMs a peer may send for each DATA frame that it gets
	// (the account caused). Many peers send two WINDOW_UPDATEs for each DATA frame, and peers that read in small
	// pieces send more.
	causedByData = 10
	// minCausing is the size from which a DATA frame counts in caused, unless the frame ends a body. Otherwise a peer
	// with windows of one byte could send causedByData frames for each byte.
	minCausing = 1 << 10
	// MaxLate bounds Late.
	MaxLate = 1 << 30
)

// Idle counts a frame that advances no exchange. It returns an error, which ends the connection, if the peer has sent too
// many such frames. So do the other methods that return an error.
func (f *Flood) Idle() *Error { return f.Spend(1) }

// Spend counts work that costs as much as n frames. n is at most FloodBudget.
func (f *Flood) Spend(n int) *Error {
	f.Left -= n
	if f.Left >= 0 {
		return nil
	}
	now := time.Now()
	if !f.since.IsZero() && now.Sub(f.since) < FloodInterval {
		return FloodError(fmt.Sprintf("more than %d frames in %v that serve no exchange", FloodBudget, FloodInterval))
	}
	f.since, f.Left = now, FloodBudget
	return nil
}

// Sent records that adbuffer has sent a DATA frame with n bytes. last says that the frame ends a body.
func (f *Flood) Sent(n int, last bool) {
	if n >= minCausing || last {
		f.caused += causedByData
	}
}

// Caused counts a frame that DATA may have caused: a WINDOW_UPDATE, or a late RST_STREAM.
func (f *Flood) Caused() *Error {
	if f.caused > 0 {
		f.caused--
		return nil
	}
	return f.Idle()
}

// Waste counts n bytes of DATA for an ended stream. The window of an ended stream never grows, so a peer that follows
// the protocol cannot exceed Late.
func (f *Flood) Waste(n int) *Error {
	f.Late -= n
	if f.Late < 0 {
		return FlowError("more DATA for reset streams than their windows")
	}
	return nil
}

// Earn records that an exchange has ended.
func (f *Flood) Earn() { f.Left = min(f.Left+floodEarned, FloodBudget) }

// Expect allows for DATA that is still in flight on a stream that has ended. window is the size of the stream's
// window.
func (f *Flood) Expect(window int) { f.Late = min(f.Late+window, MaxLate) }
