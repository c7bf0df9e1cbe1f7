package capacity

import (
	"math"
	"time"
)

// MaxPlaces is the largest pool that this package sizes. It bounds the time of
// one call to a few milliseconds; one address has 65,535 ports.
const MaxPlaces = 1_000_000

// DefaultWaitingShare is the share of requests that may wait for a place: 3 %.
// Halving it costs about a sixth of the spare places again.
const DefaultWaitingShare = 0.03

// ErlangB returns the share of requests that find every server busy when those
// requests are turned away, for a load in erlangs. It is exact for Poisson
// arrivals and any distribution of hold times. No servers give 1, a load that
// is not above 0 gives 0.
//
// A. K. Erlang, "Solution of some Problems in the Theory of Probabilities of
// Significance in Automatic Telephone Exchanges", 1917. The recurrence
// B(n) = a·B(n−1) / (n + a·B(n−1)) replaces factorials, which overflow from
// 171 servers on; each of its steps shrinks the error of the one before.
func ErlangB(servers int, load float64) float64 {
	if !(load > 0) {
		return 0
	}
	if math.IsInf(load, 1) {
		return 1
	}
	blocked := 1.0
	for n := 1; n <= servers; n++ {
		blocked = nextErlangB(n, load, blocked)
		if blocked == 0 {
			return 0 // below the smallest float64; more servers cannot raise it
		}
	}
	return blocked
}

// nextErlangB returns B(n) from B(n−1).
func nextErlangB(n int, load, blocked float64) float64 {
	return load * blocked / (float64(n) + load*blocked)
}

// ErlangC returns the share of requests that have to wait when none is turned
// away, for a load in erlangs: C = N·B / (N − L·(1 − B)). It is exact for
// Poisson arrivals and exponential hold times, and close for others. A load
// that fills the servers, L ≥ N, gives 1: in the end everybody waits. A load
// that is not above 0 gives 0.
//
// The delay formula of the same paper as [ErlangB]'s; C from B as in R. B.
// Cooper, "Introduction to Queueing Theory".
func ErlangC(servers int, load float64) float64 {
	if !(load > 0) {
		return 0
	}
	if load >= float64(servers) {
		return 1
	}
	return erlangCFromB(servers, load, ErlangB(servers, load))
}

// erlangCFromB needs load < servers.
func erlangCFromB(servers int, load, blocked float64) float64 {
	n := float64(servers)
	return n * blocked / (n - load*(1-blocked))
}

// Places returns the least number of places with which at most waitingShare of
// the requests wait, by exact Erlang C: the advised pool size. It is always
// more than the load. No load needs 0 places. A share that is not above 0, and
// a load too large for it, give [MaxPlaces].
func Places(rate float64, meanHold time.Duration, waitingShare float64) int {
	return placesForLoad(Load(rate, meanHold), waitingShare)
}

func placesForLoad(load, waitingShare float64) int {
	if load == 0 {
		return 0
	}
	if !(load < MaxPlaces) || !(waitingShare > 0) {
		return MaxPlaces
	}
	blocked := 1.0
	for n := 1; n < MaxPlaces; n++ {
		blocked = nextErlangB(n, load, blocked)
		if float64(n) > load && erlangCFromB(n, load, blocked) <= waitingShare {
			return n
		}
	}
	return MaxPlaces
}

// SquareRootPlaces returns L + 2·√L, unrounded: the rule of thumb for pools in
// which about 3 % of the requests wait. For loads of 40 to 4,000 it stays within
// two places of [Places]; below, it buys too few. Use it to check a pool in the
// head, not to size one. A load that is not above 0 gives 0.
//
// Square-root staffing: S. Halfin, W. Whitt, "Heavy-Traffic Limits for Queues
// with Many Exponential Servers", Operations Research 29(3), 1981.
func SquareRootPlaces(load float64) float64 {
	if !(load > 0) {
		return 0
	}
	return load + 2*math.Sqrt(load)
}

// WaitingShare returns the share of requests, 0 to 1, that wait for one of the
// places, by [ErlangC].
func WaitingShare(rate float64, meanHold time.Duration, places int) float64 {
	return ErlangC(places, Load(rate, meanHold))
}

// MeanWait returns the mean time to a place over all requests, those that do
// not wait included: C·W/(N − L). It is exact for Poisson arrivals and
// exponential hold times. For lognormal ones it is right to within 40 % in a
// pool of the size that [Places] gives; as a pool fills, the true wait tends to
// (1 + c²)/2 of this one, c² being variance/mean² of the holds (A. M. Lee, P. A.
// Longton, Operational Research Quarterly 10, 1959). ok is false, and the
// wait 0, where the rate fills the places, for then waits have no mean: they
// grow as long as the rate lasts.
func MeanWait(rate float64, meanHold time.Duration, places int) (wait time.Duration, ok bool) {
	load := Load(rate, meanHold)
	if load == 0 {
		return 0, true
	}
	if load >= float64(places) {
		return 0, false
	}
	ns := ErlangC(places, load) * float64(meanHold) / (float64(places) - load)
	return toDuration(ns), true
}
