// Package alarm serves several moments with one timer, which fires at the earliest of them.
package alarm

import "time"

// Alarm calls Ring at the earliest moment that Set was called with. The caller's lock guards the Alarm.
type Alarm struct {
	// Ring is called by the timer, on a goroutine of its own. It must set At to zero, and may then call Set for the
	// next moment.
	Ring  func()
	At    time.Time // when the timer calls Ring; zero if no call is due
	timer *time.Timer
}

// Set ensures that Ring is called at the moment at, or earlier.
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

// Stop stops the timer of an alarm that will not be set again. A call of Ring may still be running when Stop returns.
func (a *Alarm) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
