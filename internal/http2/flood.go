package http2

import "time"

// flood counts frames that make work and bring no exchange forward: PING,
// SETTINGS, DATA without content, WINDOW_UPDATE that nobody waits for, what is
// sent for streams that are gone, unknown types. Each may be harmless; there is
// a number of them that is not. RFC 9113, section 10.5.
//
// Conn.mu guards it.
type flood struct {
	left  int       // such frames that may still come
	since time.Time // when left was last filled up
	// late is how many bytes of DATA may still come for streams that we have
	// reset: what their windows held then.
	late int
}

const (
	// floodBudget is how many such frames may come in floodInterval beside
	// those that exchanges earn.
	floodBudget   = 1000
	floodInterval = time.Second
	// floodEarned is how many an exchange earns: a peer may send PINGs and
	// WINDOW_UPDATEs for each.
	floodEarned = 10
	// maxLate keeps late from growing for ever.
	maxLate = 1 << 30
)

// idle counts a frame.
func (f *flood) idle() *connError { return f.spend(1) }

// spend counts work as n frames make it. n is at most floodBudget.
func (f *flood) spend(n int) *connError {
	if f.left -= n; f.left >= 0 {
		return nil
	}
	now := time.Now()
	if !f.since.IsZero() && now.Sub(f.since) < floodInterval {
		return floodError("too many frames that serve no exchange")
	}
	f.since, f.left = now, floodBudget
	return nil
}

// waste counts n bytes of DATA for a stream that is gone. A window of such a
// stream is not opened again, so there is an end to what a peer may send.
func (f *flood) waste(n int) *connError {
	if f.late -= n; f.late < 0 {
		return flowError("more DATA for reset streams than their windows")
	}
	return nil
}

// earn notes that an exchange has ended.
func (f *flood) earn() { f.left = min(f.left+floodEarned, floodBudget) }

// reset notes that we have reset a stream whose window held so much.
func (f *flood) reset(window int) {
	f.earn()
	f.late = min(f.late+window, maxLate)
}
