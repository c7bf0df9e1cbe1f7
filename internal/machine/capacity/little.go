// Package capacity applies Little's law. It computes how many places a pool needs for a rate and a hold time, at
// which rate the pool is full, and how many requests wait.
//
// A place carries one request at a time: one HTTP/1 connection or one HTTP/2 stream. A rate is in
// requests per second, including rejected ones: pools are sized for the requests that arrive. A
// hold is the time from acquiring a place to its release, which is longer than the SSP's own
// latency. A load is the mean number of places in use, in erlangs: rate × hold, without unit.
//
// All functions are pure and safe for concurrent use. They do not panic on invalid numbers (negative, NaN); each
// exported function documents what it returns for invalid numbers, and [Plan] returns an error.
package capacity

import (
	"math"
	"time"
)

// z99 is the 99th percentile of the standard normal distribution, with the three decimals of
// printed tables.
const z99 = 2.326

// Load returns the mean number of places in use, L = λ·W, for rate λ in requests per second and mean hold W. The law
// holds for any arrivals and any hold times, as long as neither drifts. A rate or hold that is not above 0 gives 0.
//
// J. D. C. Little, "A Proof for the Queuing Formula: L = λW", Operations Research 9(3), 1961.
func Load(rate float64, hold time.Duration) float64 {
	if !(rate > 0) || hold <= 0 {
		return 0
	}
	return rate * hold.Seconds()
}

// FullRate returns the rate, in requests per second, at which all places are in use all the time:
// N/W, by Little's law. At a higher rate the queue only grows. places is a float64 to allow
// unrounded rules of thumb. Places or a hold that are not above 0 give 0.
func FullRate(places float64, hold time.Duration) float64 {
	if !(places > 0) || hold <= 0 {
		return 0
	}
	return places / hold.Seconds()
}

// HeadroomRatio returns the share of the places that a load leaves free, 1 − L/N: 1 for an idle pool, 0 for a full
// one. It is negative if the load exceeds the places: −0.5 means that the load needs half as many places again. No
// places give 0.
func HeadroomRatio(load float64, places int) float64 {
	if places <= 0 {
		return 0
	}
	return 1 - load/float64(places)
}

// lognormalMean returns the mean of a lognormal distribution with the given median and 99th percentile:
// p50·exp(σ²/2), σ = ln(p99/p50)/2.326. Latencies are skewed, so their mean, which Little's law needs, is above the
// median: a pool sized by p50 is too small. A p99 below p50 counts as p50. It returns 0 if p50 is not above 0. If the
// mean exceeds the longest Duration, the result is the longest Duration.
//
// For the mean and quantiles of the lognormal, see N. L. Johnson, S. Kotz, N. Balakrishnan,
// "Continuous Univariate Distributions", vol. 1, chapter 14.
func lognormalMean(p50, p99 time.Duration) time.Duration {
	if p50 <= 0 {
		return 0
	}
	sigma := 0.0 // standard deviation of the logarithm
	if p99 > p50 {
		sigma = math.Log(float64(p99)/float64(p50)) / z99
	}
	return toDuration(float64(p50) * math.Exp(sigma*sigma/2))
}

// toDuration converts ns nanoseconds, which must not be negative, to a Duration. It rounds down, and returns at most
// the longest Duration.
func toDuration(ns float64) time.Duration {
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(ns)
}
