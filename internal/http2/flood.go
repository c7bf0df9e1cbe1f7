package http2

import "time"

// flood counts frames that make work and bring no exchange forward: PING,
// SETTINGS, DATA without content, WINDOW_UPDATE that nobody waits for, what is
// sent for streams that are gone, unknown types. Each may be harmless; there is
// a number of them that is not. RFC 9113, section 10.5.
//
// The reader owns it.
type flood struct {
	left  int       // such frames that may still come
	since time.Time // when left was last filled up
}

const (
	// floodBudget is how many such frames may come in floodInterval beside
	// those that exchanges earn.
	floodBudget   = 1000
	floodInterval = time.Second
	// floodEarned is how many an exchange earns: a peer may send PINGs and
	// WINDOW_UPDATEs for each.
	floodEarned = 10
)

// idle counts a frame.
func (f *flood) idle() *connError {
	if f.left--; f.left >= 0 {
		return nil
	}
	now := time.Now()
	if !f.since.IsZero() && now.Sub(f.since) < floodInterval {
		return floodError("too many frames that serve no exchange")
	}
	f.since, f.left = now, floodBudget
	return nil
}

// earn notes that an exchange was answered.
func (f *flood) earn() { f.left = min(f.left+floodEarned, floodBudget) }
