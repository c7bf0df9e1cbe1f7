// Package capacity is Little's law: how many places a pool needs for a rate
// and a hold time, at which rate it fills, and how many requests wait.
//
// A place carries one request at a time: one HTTP/1 connection or one HTTP/2
// stream. Rates are requests per second and include the rejected ones: what is
// sized is what arrives, not what got through. A hold is the time from lending
// a place to its return, which is longer than the SSP's own latency. A load is
// the mean number of busy places, in erlangs: rate × hold, without unit.
//
// All functions are pure and safe for concurrent use. Numbers that mean
// nothing (negative, NaN) never panic; each function says what they give.
// [Plan] refuses them with an error instead.
package capacity

import (
	"math"
	"time"
)

// z99 is the 99th percentile of the standard normal distribution, to the three
// decimals that printed tables give.
const z99 = 2.326

// Load returns the mean number of places in use, L = λ·W, for rate λ in
// requests per second and mean hold W. It holds for any arrivals and any hold
// times, as long as neither drifts. A rate or hold that is not above 0 gives 0.
//
// J. D. C. Little, "A Proof for the Queuing Formula: L = λW", Operations
// Research 9(3), 1961.
func Load(rate float64, hold time.Duration) float64 {
	if !(rate > 0) || hold <= 0 {
		return 0
	}
	return rate * hold.Seconds()
}

// FullRate returns the rate, in requests per second, at which the given places
// are all busy all the time: N/W, Little's law read the other way. Above it a
// queue only grows. Places is a float64 so that an unrounded rule of thumb can
// be asked too. Places or a hold that are not above 0 give 0: such a pool
// carries nothing.
func FullRate(places float64, hold time.Duration) float64 {
	if !(places > 0) || hold <= 0 {
		return 0
	}
	return places / hold.Seconds()
}

// HeadroomRatio returns the share of the places that a load leaves free,
// 1 − L/N: 1 is an idle pool, 0 a full one. It is negative where more is asked
// than there is: −0.5 says half as many places again are missing. A pool of no
// places has headroom 0.
func HeadroomRatio(load float64, places int) float64 {
	if places <= 0 {
		return 0
	}
	return 1 - load/float64(places)
}

// LognormalMean returns the mean of a lognormal distribution with the given
// median and 99th percentile: p50·exp(σ²/2), σ = ln(p99/p50)/2.326. Latencies are skewed, so their
// mean, which Little's law needs, lies above the median; p50 alone undersizes a
// pool. A p99 below p50 counts as p50. It is 0 if p50 is not above 0, and the
// longest Duration if the mean is longer still.
//
// The mean and quantiles of the lognormal: N. L. Johnson, S. Kotz, N.
// Balakrishnan, "Continuous Univariate Distributions", vol. 1, chapter 14.
func LognormalMean(p50, p99 time.Duration) time.Duration {
	if p50 <= 0 {
		return 0
	}
	sigma := 0.0 // standard deviation of the logarithm
	if p99 > p50 {
		sigma = math.Log(float64(p99)/float64(p50)) / z99
	}
	return toDuration(float64(p50) * math.Exp(sigma*sigma/2))
}

// toDuration rounds ns nanoseconds, not negative, down to a Duration, and to
// the longest one if they do not fit.
func toDuration(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
