package http1

import (
	"testing"

	"adbuffer/internal/test/testsupport"
)

// fasthttp's server closes a connection that is over, and also a connection that is parked, or goes on as HTTP/2.
func TestTheEndOfServingDependsOnThePhase(t *testing.T) {
	for _, tt := range []struct {
		phase        phase
		busy, unread bool
		want         closing
		then         phase
	}{
		{phase: connecting, busy: true, unread: true, want: ends, then: connecting},
		{phase: serving, busy: true, want: ends, then: serving},
		{phase: serving, unread: true, want: lingers, then: lingering},
		{phase: parking, unread: true, want: parks, then: parked},
		{phase: parking, busy: true, unread: true, want: resumes, then: serving},
		{phase: lingering, busy: true, unread: true, want: stays, then: lingering},
		{phase: closed, busy: true, unread: true, want: ends, then: closed},
	} {
		l := lifecycle{phase: tt.phase}
		got := l.leaveLocked(func() bool { return tt.busy }, func() bool { return tt.unread })
		testsupport.True(t, got == tt.want && l.phase == tt.then, "phase %d: %d, then phase %d; want %d, %d", tt.phase, got, l.phase, tt.want, tt.then)
		testsupport.Equal(t, l.change(parking, serving), tt.then == parking, "phase %[3]d: parking ended: %[1]v", l.phase)
	}
}
