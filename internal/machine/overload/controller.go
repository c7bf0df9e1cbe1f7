package overload

import (
	"math"
	"runtime"
	"time"
)

// controller finds which share of the requests may pass, so that the standing lag stays at its target.
// newController returns one that refuses nothing.
type controller struct {
	may      float64 // the share that may pass in the long run, up to mostMay
	now      float64 // the share of those that the last lag alone refuses
	arrivals [Priorities]float64
	pause    time.Duration
	cores    float64
}

// load is what a window has seen.
type load struct {
	arrived [Priorities]float64 // requests
	refused float64             // of all priorities
}

// may is the integral part of a PI controller: it falls while the lag is above its target, so it finds
// the share that a lasting overload leaves. It still falls while the queue for CPU already shrinks, so
// alone it would refuse too much, then too little, again and again. The proportional part, now, follows
// the last lag up and down at once, and so damps that. Both multiply: if a fifth of the requests may
// pass, a step is a fifth of the step without overload.
const (
	// Shares of what may pass, for each target by which the lag exceeds its target, and for each window
	// of 100 ms.
	mayGain = 0.01
	nowGain = 0.02
	// mostMay is above 1, so that a quarter of the requests must be too much before any is refused: a
	// collection of garbage, a scrape or a noisy neighbour makes the lag long too, but not for long. Only
	// a lag above 13 targets refuses at once.
	mostMay = 4.0 / 3
	// mostExcess bounds what a single window changes.
	mostExcess = 30
	// A window without an excess multiplies may by mayGrows, and adds mayStart: CPU that is idle while
	// requests are refused is lost.
	mayGrows = 1.1
	mayStart = 0.002
	// memory is how much of the arrivals before a window still counts after it.
	memory = 0.7
)

func newController() controller {
	return controller{may: mostMay, cores: float64(runtime.GOMAXPROCS(0))}
}

const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
	// cheapRefusals is how many requests each core may refuse in a second without a longer pause. A refusal
	// takes about 8 µs, so they take 8 % of the CPU.
	cheapRefusals = 10_000
	pauseGrows    = 2
	pauseShrinks  = 0.9
)

// observe learns from a window: its lag in targets, its length, and its requests.
func (c *controller) observe(lag float64, length time.Duration, l *load, dryRun bool) {
	windows := min(length.Seconds()*10, 5)
	excess := min(lag-1, mostExcess)
	c.now = max(0, excess*nowGain)
	if excess > 0 {
		c.may *= math.Exp(-excess * mayGain * windows)
	} else {
		c.may = min(c.may*math.Pow(mayGrows, windows)+mayStart*windows, mostMay)
	}
	if dryRun { // nothing ends the overload, so may would fall for ever
		c.may = mostMay
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
	by := float64(pauseShrinks)
	if l.refused > cheapRefusals*0.1*windows*c.cores {
		by = pauseGrows
	}
	moved := time.Duration(float64(max(minPause, c.pause)) * math.Pow(by, windows))
	c.pause = min(max(minPause, moved), maxPause)
}

// share returns the share of all requests that is to be refused.
func (c *controller) share() float64 { return max(0, 1-c.may*(1-c.now)) }

// shares returns the share of the requests of each priority that is to be refused: of the next priority
// only if all of the one before are refused. A sudden lag alone refuses nothing critical: that needs a
// lasting one.
func (c *controller) shares() (shares [Priorities]float64) {
	all := 0.0
	for _, n := range c.arrivals {
		all += n
	}
	left, leftInLongRun := c.share()*all, (1-c.may)*all
	for _, p := range refusedInOrder {
		if p == Critical {
			left = min(left, leftInLongRun)
		}
		if n := c.arrivals[p]; n > 0 && left > 0 {
			shares[p] = min(1, left/n)
		}
		left, leftInLongRun = left-c.arrivals[p], leftInLongRun-c.arrivals[p]
	}
	return shares
}
