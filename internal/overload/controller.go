package overload

import (
	"math"
	"time"
)

// controller finds which share of the requests to refuse, so that the standing lag stays at its target.
// The zero value refuses nothing.
type controller struct {
	sum      float64 // the integral part of the share
	now      float64 // its proportional part
	arrivals [Priorities]float64
	pause    time.Duration
}

// load is what a window has seen.
type load struct {
	arrived [Priorities]float64 // requests
	refused float64             // of all priorities
}

// The rule is a PI controller. The integral part grows while the lag is above its target, so it finds the
// share that a lasting overload needs. It still grows while the queue for CPU already shrinks, so alone it
// would refuse too much, then too little, again and again. The proportional part follows the last lag up
// and down at once, and so damps that.
const (
	// Shares for each target by which the lag exceeds its target, and for each window of 100 ms.
	sumGain = 0.002
	nowGain = 0.02
	// free is the share below which nothing is refused: a collection of garbage, a scrape or a noisy
	// neighbour makes the lag long too, but not for long. Only a lag above 13 targets refuses at once.
	free = 0.25
	// mostExcess bounds how far a single window moves the sum.
	mostExcess = 30
	// sumShrinks is what a window without an excess leaves of the sum: CPU that is idle while requests
	// are refused is lost.
	sumShrinks = 0.9
	// memory is how much of the arrivals before a window still counts after it.
	memory = 0.7
)

const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
	// Refused requests are to be at most one part in refusedShare of the others. Refusing costs a
	// third of forwarding, so it takes a tenth of the CPU then.
	refusedShare = 4
	pauseGrows   = 2
	pauseShrinks = 0.9
)

// observe learns from a window: its lag in targets, its length, and its requests.
func (c *controller) observe(lag float64, length time.Duration, l *load, dryRun bool) {
	windows := min(length.Seconds()*10, 5)
	excess := min(lag-1, mostExcess)
	c.now = max(0, excess*nowGain)
	if excess > 0 {
		c.sum = min(c.sum+excess*sumGain*windows, 1+free)
	} else {
		c.sum *= math.Pow(sumShrinks, windows)
	}
	if dryRun { // nothing ends the overload, so the sum would rise for ever
		c.sum = 0
	}
	for p, n := range l.arrived {
		c.arrivals[p] = memory*c.arrivals[p] + n
	}
	c.movePause(windows, l)
}

// movePause makes the pause longer while too many requests are refused, and else shorter. Clients that
// send again at once get fewer requests read during a longer pause. A window of a long lag is long too, so
// it moves the pause as several would.
func (c *controller) movePause(windows float64, l *load) {
	passed := -l.refused
	for _, n := range l.arrived {
		passed += n
	}
	by := float64(pauseShrinks)
	if l.refused*refusedShare > passed {
		by = pauseGrows
	}
	moved := time.Duration(float64(max(minPause, c.pause)) * math.Pow(by, windows))
	c.pause = min(max(minPause, moved), maxPause)
}

func (c *controller) pauseFor() time.Duration { return c.pause }

// share returns the share of all requests that is to be refused.
func (c *controller) share() float64 { return min(max(0, c.sum+c.now-free), 1) }

// shares returns the share of the requests of each priority that is to be refused: of the next priority
// only if all of the one before are refused. A sudden lag alone refuses nothing critical: that needs the
// sum.
func (c *controller) shares() (shares [Priorities]float64) {
	all := 0.0
	for _, n := range c.arrivals {
		all += n
	}
	left, leftBySum := c.share()*all, (c.sum-free)*all
	for _, p := range refusedInOrder {
		if p == Critical {
			left = min(left, leftBySum)
		}
		if n := c.arrivals[p]; n > 0 && left > 0 {
			shares[p] = min(1, left/n)
		}
		left, leftBySum = left-c.arrivals[p], leftBySum-c.arrivals[p]
	}
	return shares
}
