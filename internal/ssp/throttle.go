package ssp

import (
	"sync/atomic"
	"time"
)

// throttle counts an SSP's responses of the last second, and how many of them were 429. It is safe
// for concurrent use, and takes no lock.
//
// Each slot counts one step of time. Its high bits hold the step's number. So the first response of
// a new step clears the slot, and no timer is needed.
type throttle struct {
	slots [throttleSlots]atomic.Uint64
}

// throttleSlots is the number of steps in the window, which spans between 15/16 of a second and a
// second.
const (
	throttleSlots = 16
	throttleStep  = time.Second / throttleSlots
)

// A slot holds the step's number (24 bits, 12 days until it repeats), the number of 429s and the
// number of responses (20 bits each). 20 bits suffice for 16 million responses a second.
const (
	oneResponse  = 1
	oneThrottled = 1 << 20
	oneStep      = 1 << 40
)

// record counts a response that arrived at now.
func (t *throttle) record(now time.Duration, throttled bool) {
	n := uint64(oneResponse)
	if throttled {
		n += oneThrottled
	}
	step := stepAt(now)
	slot := &t.slots[step%throttleSlots]
	for {
		was := slot.Load()
		switch age := age(step, was); {
		case age == 0:
			// Another goroutine may begin the slot's next step at this moment. The response then
			// counts there, 1 s too late.
			slot.Add(n)
			return
		case age >= newerSteps:
			return // the response arrived before the slot's step: too late to count
		case slot.CompareAndSwap(was, step*oneStep+n):
			return
		}
	}
}

// tally returns how many responses arrived in the second before now, and how many of them were 429.
func (t *throttle) tally(now time.Duration) (responses, throttled uint64) {
	step := stepAt(now)
	for i := range t.slots {
		if v := t.slots[i].Load(); age(step, v) < throttleSlots {
			responses += v % oneThrottled
			throttled += v % oneStep / oneThrottled
		}
	}
	return responses, throttled
}

func stepAt(now time.Duration) uint64 { return uint64(now/throttleStep) % (1 << 24) }

// age returns by how many steps a slot's value is older than step. A value that is slightly newer
// appears as newerSteps or more.
func age(step, value uint64) uint64 { return (step - value/oneStep) % (1 << 24) }

// newerSteps is 2^24 minus a minute. Goroutines do not lag that far behind each other. So a slot
// that was unused for days does not appear as newer.
const newerSteps = 1<<24 - uint64(time.Minute/throttleStep)
