package http2codec

import "time"

// Flood counts frames that cost work and advance no exchange: PING, SETTINGS, DATA without
// content, WINDOW_UPDATE for which no stream waits, frames for streams that have ended,
// unknown types. A few are harmless, many are an attack. RFC 9113, section 10.5.
//
// Conn.mu guards it.
type Flood struct {
	Left  int       // such frames that may still come
	since time.Time // when left was last filled up
	// late is how many bytes of DATA may still come for streams that we have
	// reset: what their windows held then.
	Late int
}

const (
	// floodBudget is how many such frames may come in floodInterval beside
	// those that exchanges earn.
	FloodBudget   = 1000
	FloodInterval = time.Second
	// floodEarned is how many an exchange earns: a peer may send PINGs and
	// WINDOW_UPDATEs for each.
	floodEarned = 10
	// maxLate bounds late.
	MaxLate = 1 << 30
)

// Idle counts a frame.
func (f *Flood) Idle() *Error { return f.Spend(1) }

// Spend counts work as n frames make it. n is at most floodBudget.
func (f *Flood) Spend(n int) *Error {
	if f.Left -= n; f.Left >= 0 {
		return nil
	}
	now := time.Now()
	if !f.since.IsZero() && now.Sub(f.since) < FloodInterval {
		return FloodError("too many frames that serve no exchange")
	}
	f.since, f.Left = now, FloodBudget
	return nil
}

// Waste counts n bytes of DATA for a stream that is gone. A window of such a
// stream is not opened again, so there is an end to what a peer may send.
func (f *Flood) Waste(n int) *Error {
	if f.Late -= n; f.Late < 0 {
		return FlowError("more DATA for reset streams than their windows")
	}
	return nil
}

// Earn notes that an exchange has ended.
func (f *Flood) Earn() { f.Left = min(f.Left+floodEarned, FloodBudget) }

// Expect notes that a stream has ended on which so much may still come.
func (f *Flood) Expect(window int) { f.Late = min(f.Late+window, MaxLate) }

// Reset notes that we have reset a stream whose window held so much.
func (f *Flood) Reset(window int) {
	f.Earn()
	f.Expect(window)
}
