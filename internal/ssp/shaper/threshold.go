package shaper

import "math"

const (
	buckets = 64 // of scores from 2^-16 to 1
	octave  = 4  // buckets in which the score doubles

	arrivalsKept = 0.8  // of the counts of arrivals, a second later
	belowLimit   = 0.98 // everything passes while arrivals are at most this share of the limit
)

// bucketOf returns the bucket of a score. Scores under 2^-16 are in the lowest bucket.
func bucketOf(score float64) int {
	const (
		mantissa = 1<<52 - 1
		quarter  = 0x306fe0a31b715 // mantissas of 2^(1/4), 2^(1/2) and 2^(3/4)
		half     = 0x6a09e667f3bcd
		three    = 0xae89f995ad3ad
	)
	bits := math.Float64bits(score)
	b := (int(bits>>52) - 1023 + buckets/octave) * octave
	if b < 0 {
		return 0
	}
	switch m := bits & mantissa; {
	case m >= three:
		b += 3
	case m >= half:
		b += 2
	case m >= quarter:
		b++
	}
	return min(b, buckets-1)
}

// arrivals counts requests by the bucket of their score. The counts fade, so that they follow the traffic.
type arrivals struct {
	counts [buckets]float64 // faded, and those of the current second
	second float64          // arrivals in the current second
	rate   float64          // requests a second, as of the last second that ended
}

// add counts a request.
func (a *arrivals) add(bucket int) {
	a.counts[bucket]++
	a.second++
}

// advance ends a second, after which elapsed seconds have passed since the one before.
func (a *arrivals) advance(elapsed float64) {
	if elapsed > 1 { // the last second had no arrivals
		a.fade(math.Pow(arrivalsKept, elapsed-1))
		a.second = 0
	}
	a.rate = max(a.second, a.total()*(1-arrivalsKept))
	a.second = 0
	a.fade(arrivalsKept)
}

// fade multiplies the counts by kept.
func (a *arrivals) fade(kept float64) {
	for i := range a.counts {
		a.counts[i] *= kept
	}
}

// total returns the sum of the faded counts.
func (a *arrivals) total() (sum float64) {
	for _, n := range a.counts {
		sum += n
	}
	return sum
}

// threshold is the score from which requests pass. The scores in the bucket at its edge pass in proportion, at random.
type threshold struct {
	edge  int     // bucket at the edge
	pass  float64 // the share of the edge bucket that passes
	share float64 // the share of all arrivals that passes
}

// passAll is the threshold that lets all requests pass.
var passAll = threshold{edge: 0, pass: 1, share: 1}

// position returns the threshold in buckets, from 0.
func (t threshold) position() float64 { return float64(t.edge) + 1 - t.pass }

// score returns the threshold as a score; 0 lets everything pass.
func (t threshold) score() float64 {
	if t.position() == 0 {
		return 0
	}
	return math.Exp2(t.position()/octave - buckets/octave)
}

// chance returns the probability that a score of the given bucket passes a threshold that is raised by some buckets.
func (t threshold) chance(bucket, raised int) float64 {
	switch edge := t.edge + raised; {
	case bucket > edge:
		return 1
	case bucket == edge:
		return t.pass
	}
	return 0
}

// forLimit returns the threshold that lets the given requests a second pass, those with the highest scores.
func (a *arrivals) forLimit(perSecond float64) threshold {
	share := perSecond / a.rate
	left := share * a.total()
	for b := buckets - 1; b >= 0; b-- {
		if n := a.counts[b]; n > 0 && n >= left {
			return threshold{edge: b, pass: left / n, share: share}
		}
		left -= a.counts[b]
	}
	return passAll
}

// exploration returns the probability with which a request below the threshold is sent, so that explore is its share
// of all requests that are sent while a share of arrivals passes. It is never 0, so that weights are finite.
func exploration(explore, share float64) float64 {
	if share >= 1 {
		return 1
	}
	return min(1, max(1e-9, explore/(1-explore)*share/(1-share)))
}
