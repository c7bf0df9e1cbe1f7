package overload

import (
	"math"
	"runtime"
	"time"
)

// controller is a PI controller. It finds the share of requests to admit, so that the standing lag stays at its
// target. A controller of newController admits all requests.
type controller struct {
	admitted       float64 // integral part: the share of requests to admit in the long run, up to maxAdmitted
	transientShare float64 // proportional part: the share of the admitted requests that the last lag alone refuses
	arrivals       [Priorities]float64
	pause          time.Duration
	cores          float64
}

// windowLoad counts the requests of one window.
type windowLoad struct {
	arrived [Priorities]float64 // requests, refused or not
	refused float64             // requests of all priorities
}

// controller.admitted falls while the lag is above its target, and so finds the share that a lasting overload leaves
// room for. It keeps falling while the queue for CPU is already shrinking, so alone it would oscillate between
// refusing too much and too little. controller.transientShare follows the last lag at once, up and down, and damps
// the oscillation. Both multiply what is admitted: while a fifth of the requests is admitted, a step is a fifth as
// large as without overload.
const (
	// How much admitted and transientShare change in each window of 100 ms, for each multiple of the target by which
	// the lag exceeds the target.
	admittedGain  = 0.01
	transientGain = 0.02
	// maxAdmitted is above 1, so that no request is refused until adbuffer has a quarter more requests than it can
	// serve. Garbage collections, scrapes and noisy neighbours also cause lag, but only for a short time. Only a lag
	// of more than 10 targets refuses requests at once.
	maxAdmitted = 4.0 / 3
	// maxExcess bounds the excess lag of one window, in targets, and so what a single window changes.
	maxExcess = 30
	// A window whose lag is within the target multiplies admitted by admittedGrowth, and adds admittedStep, so that
	// no CPU stays idle while requests are refused.
	admittedGrowth = 1.1
	admittedStep   = 0.002
	// arrivalsKept is the factor by which each window discounts the arrivals of the windows before it.
	arrivalsKept = 0.7
)

func newController() controller {
	return controller{admitted: maxAdmitted, cores: float64(runtime.GOMAXPROCS(0))}
}

const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
	// cheapRefusals is how many requests each core may refuse in a second before pauses get longer. A refusal costs
	// about 8 µs, so these cost 8 % of the CPU.
	cheapRefusals = 10_000
	pauseGrowth   = 2
	pauseDecay    = 0.9
)

// observe adjusts the controller after a window. lag is the standing lag divided by the target.
func (c *controller) observe(lag float64, length time.Duration, l *windowLoad, dryRun bool) {
	windows := min(length.Seconds()*10, 5)
	excess := min(lag-1, maxExcess)
	c.transientShare = max(0, excess*transientGain)
	if excess > 0 {
		c.admitted *= math.Exp(-excess * admittedGain * windows)
	} else {
		c.admitted = min(c.admitted*math.Pow(admittedGrowth, windows)+admittedStep*windows, maxAdmitted)
	}
	if dryRun { // refusals do not end the overload in a dry run, so admitted would fall for ever
		c.admitted = maxAdmitted
	}
	for p, n := range l.arrived {
		c.arrivals[p] = arrivalsKept*c.arrivals[p] + n
	}
	c.adaptPause(windows, l)
}

// adaptPause lengthens the pause while too many requests are refused, and shortens it otherwise. During a longer
// pause, fewer requests are read from clients that repeat refused requests at once. A window that a long lag has made
// long counts as several windows.
func (c *controller) adaptPause(windows float64, l *windowLoad) {
	factor := float64(pauseDecay)
	if l.refused > cheapRefusals*0.1*windows*c.cores {
		factor = pauseGrowth
	}
	adapted := time.Duration(float64(max(minPause, c.pause)) * math.Pow(factor, windows))
	c.pause = min(max(minPause, adapted), maxPause)
}

// shareToRefuse returns the share of all requests that must be refused.
func (c *controller) shareToRefuse() float64 { return max(0, 1-c.admitted*(1-c.transientShare)) }

// sharesByPriority returns the share of each priority's requests that must be refused. Requests of a priority are
// refused only if all requests of the priorities before it in refusalOrder are refused. A sudden lag refuses no
// critical request; only a lasting lag does.
func (c *controller) sharesByPriority() (shares [Priorities]float64) {
	all := 0.0
	for _, n := range c.arrivals {
		all += n
	}
	toRefuse, toRefuseInLongRun := c.shareToRefuse()*all, (1-c.admitted)*all
	for _, p := range refusalOrder {
		if p == Critical {
			toRefuse = min(toRefuse, toRefuseInLongRun)
		}
		if n := c.arrivals[p]; n > 0 && toRefuse > 0 {
			shares[p] = min(1, toRefuse/n)
		}
		toRefuse, toRefuseInLongRun = toRefuse-c.arrivals[p], toRefuseInLongRun-c.arrivals[p]
	}
	return shares
}
