package capacity

import (
	"math"
	"time"
)

// maxPlaces is the largest pool that this package sizes. It bounds the time of a call to a few
// milliseconds. An address has 65,535 ports.
const maxPlaces = 1_000_000

// DefaultWaitingShare is the share of requests that may wait for a place: 3 %. Half of it costs
// about a sixth more spare places.
const DefaultWaitingShare = 0.03

// erlangB returns the share of requests that are refused because all servers are in use, for a load
// in erlangs. It is exact for Poisson arrivals and any distribution of hold times.
//
// A. K. Erlang, "Solution of some Problems in the Theory of Probabilities of Significance in
// Automatic Telephone Exchanges", 1917. The recurrence B(n) = a·B(n−1) / (n + a·B(n−1)) replaces
// factorials, which overflow from 171 servers on. Each step reduces the error of the previous step.
func erlangB(servers int, load float64) float64 {
	blocked := 1.0
	for n := 1; n <= servers; n++ {
		blocked = nextErlangB(n, load, blocked)
	}
	return blocked
}

// nextErlangB returns B(n) from B(n−1).
func nextErlangB(n int, load, blocked float64) float64 {
	return load * blocked / (float64(n) + load*blocked)
}

// erlangC returns the share of requests that wait if none is refused, for a load below the servers,
// in erlangs: C = N·B / (N − L·(1 − B)). It is exact for Poisson arrivals and exponential hold times,
// and close for other hold times.
//
// It is the delay formula of the paper of [erlangB]. For C from B, see R. B. Cooper, "Introduction
// to Queueing Theory".
func erlangC(servers int, load float64) float64 {
	return erlangCFromB(servers, load, erlangB(servers, load))
}

func erlangCFromB(servers int, load, blocked float64) float64 {
	n := float64(servers)
	return n * blocked / (n - load*(1-blocked))
}

// Places returns the smallest number of places with which at most waitingShare of the requests wait, by exact Erlang
// C: the advised pool size. It exceeds the load. No load gives 0. A waitingShare that is not above 0 gives
// [maxPlaces], as does a load that needs more places than that.
func Places(rate float64, meanHold time.Duration, waitingShare float64) int {
	return placesForLoad(Load(rate, meanHold), waitingShare)
}

func placesForLoad(load, waitingShare float64) int {
	if load == 0 {
		return 0
	}
	if !(load < maxPlaces) || !(waitingShare > 0) {
		return maxPlaces
	}
	blocked := 1.0
	for n := 1; n < maxPlaces; n++ {
		blocked = nextErlangB(n, load, blocked)
		if float64(n) > load && erlangCFromB(n, load, blocked) <= waitingShare {
			return n
		}
	}
	return maxPlaces
}

// squareRootPlaces returns L + 2·√L, unrounded: the rule of thumb for pools in which about 3 % of the requests wait.
// For loads of 40 to 4,000 it is within two places of [Places]; for smaller loads it is too low. It serves to check
// the size of a pool in one's head, not to choose the size.
//
// Square-root staffing: S. Halfin, W. Whitt, "Heavy-Traffic Limits for Queues with Many Exponential
// Servers", Operations Research 29(3), 1981.
func squareRootPlaces(load float64) float64 {
	return load + 2*math.Sqrt(load)
}

// meanWait returns the mean time until a place is free, over all requests, including those that do
// not wait: C·W/(N − L). It is exact for Poisson arrivals and exponential hold times. For lognormal
// hold times it is right within 40 % in a pool of the size that [Places] returns. As a pool fills,
// the true wait approaches (1 + c²)/2 of this value, where c² is variance/mean² of the holds (A. M.
// Lee, P. A. Longton, Operational Research Quarterly 10, 1959). The load must be below the places.
func meanWait(rate float64, meanHold time.Duration, places int) time.Duration {
	load := Load(rate, meanHold)
	return toDuration(erlangC(places, load) * float64(meanHold) / (float64(places) - load))
}
