// Package alarm has one timer for several moments: it fires at the earliest of them.
package alarm

import "time"

// Alarm calls Ring at the earliest moment that it is set to. A lock of the caller guards it.
type Alarm struct {
	// Ring must set At to zero, and may then call Set for the next moment.
	Ring  func()
	At    time.Time // of the next call; zero if there is none
	timer *time.Timer
}

// Set ensures that Ring is called at this moment or before.
func (a *Alarm) Set(at time.Time) {
	if !a.At.IsZero() && !at.Before(a.At) {
		return
	}
	a.At = at
	if wait := time.Until(at); a.timer == nil {
		a.timer = time.AfterFunc(wait, a.Ring)
	} else {
		a.timer.Reset(wait)
	}
}

// Stop is for an alarm that is not set again. A call of Ring may be under way.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
