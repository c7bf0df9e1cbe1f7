package shaper

import "math"

const (
	halfLife     = 1800 // seconds with outcomes in which what was learned halves
	seenHalfLife = 600  // seconds in which the sights of a prefix halve
	fadeEvery    = 10   // seconds between two passes over the table

	// resetAfter is how many expected fills may fail to come before a prefix is taken for another than it was, and
	// begins as its parent's child again.
	resetAfter = 8
	// pauseAfter is how many expected fills of the whole SSP may fail to come before the SSP is taken to be at fault,
	// rather than the segments.
	pauseAfter = 20
)

// learning decides which outcomes teach, and how fast what they taught is forgotten.
type learning struct {
	missed float64 // fills that were expected of the SSP since its last one
	taught bool    // the current second had an outcome that taught

	taughtSeconds, seconds float64 // since the last pass over the table
}

// teaches reports whether an outcome teaches. mean is the SSP's rate of fills.
func (l *learning) teaches(fill bool, mean float64) bool {
	switch {
	case fill:
		l.missed = 0
	case l.paused():
		return false
	default:
		l.missed += mean
	}
	l.taught = true
	return true
}

// paused reports whether no-bids teach nothing, since the SSP has answered nothing else for too long.
func (l *learning) paused() bool { return l.missed >= pauseAfter }

// advance ends a second, after which elapsed seconds have passed since the one before, and lets the model forget.
func (l *learning) advance(elapsed float64, m *model) {
	if l.taught {
		l.taught = false
		l.taughtSeconds++
	}
	if l.seconds += elapsed; l.seconds >= fadeEvery {
		m.fade(math.Exp2(-l.taughtSeconds/halfLife), math.Exp2(-l.seconds/seenHalfLife))
		l.taughtSeconds, l.seconds = 0, 0
	}
}
