package route

import (
	"sync/atomic"
	"time"

	"adbuffer/internal/wire/exchange"
)

// silence drops copies for a mirror's SSP that does not respond. Such a copy costs a dial or a
// wait, and shows only that the SSP still does not respond. After silentAfter copies in a row without a response, only
// probes are sent: one at a time, and one each probeEvery. A response ends the silence. It is safe
// for concurrent use.
type silence struct {
	inARow atomic.Int32              // copies without a response since the last response, up to silentAfter
	next   atomic.Pointer[time.Time] // when the next probe may be sent; nil = now
}

const (
	silentAfter = 5
	probeEvery  = 100 * time.Millisecond
)

// drops reports whether a copy is dropped. inFlight is the number of copies in flight.
func (s *silence) drops(now time.Time, inFlight int64) bool {
	if s.inARow.Load() < silentAfter {
		return false
	}
	next := s.next.Load()
	if inFlight > 0 || next != nil && now.Before(*next) {
		return true
	}
	after := now.Add(probeEvery)
	return !s.next.CompareAndSwap(next, &after)
}

// observe notes how a copy ended. The caller leaves out a copy that missed its deadline if the SSP had less than its
// usual time: the client had set that deadline, or adbuffer itself was late, so the miss does not show that the SSP is
// silent.
func (s *silence) observe(o exchange.Outcome) {
	switch o.Row().Contact {
	case exchange.Responded:
		if s.inARow.Load() != 0 {
			s.inARow.Store(0)
		}
	case exchange.Silent:
		if s.inARow.Load() < silentAfter {
			s.inARow.Add(1)
		}
	}
}
