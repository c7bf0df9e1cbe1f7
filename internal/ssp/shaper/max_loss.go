package shaper

import "math"

// fillsHalfLife is the half-life of fillsByScore, in seconds.
const fillsHalfLife = 1740

// fillsByScore estimates how many fills there were in each bucket of the score, also of requests that were dropped: an
// explored fill counts for all those that were not explored.
type fillsByScore struct {
	sums     [buckets]float64 // of weights
	squares  [buckets]float64 // of weights, for the error of the sums
	arrivals [buckets]float64 // requests, also those without a fill
}

// add adds a fill whose request was sent with the probability 1/weight.
func (f *fillsByScore) add(bucket int, weight float64) {
	f.sums[bucket] += weight
	f.squares[bucket] += weight * weight
}

// advance lets elapsed seconds pass.
func (f *fillsByScore) advance(elapsed float64) {
	kept := math.Exp2(-elapsed / fillsHalfLife)
	for i := range buckets {
		f.sums[i] *= kept
		f.squares[i] *= kept
		f.arrivals[i] *= kept
	}
}

// maxLossZ is the quantile of a confidence of 99.5 %. The threshold is chosen again each second, so a bound that is too
// low by chance raises the threshold at once: with 97.5 %, one of six simulated worlds lost more than max_loss in 10
// minutes.
const maxLossZ = 2.58

// threshold returns the highest threshold such that, with 99.5 % confidence, the requests below it have at most the
// share maxLoss of all fills. weight returns the weight of an explored fill while a share of arrivals passes. Outside
// a dry run that weight is huge if none pass, so nearly all of the highest bucket passes. Traffic of one score thus
// loses nothing to max_loss, and saves nothing: dropping a part of it at random would lose the same part of the
// fills.
func (f *fillsByScore) threshold(maxLoss float64, a *arrivals, weight func(share float64) float64) threshold {
	var fills float64
	for _, n := range f.sums {
		fills += n
	}
	total := a.total()
	if fills == 0 || total == 0 {
		return passAll
	}
	allowed := maxLoss * fills
	var below, lost, variance float64 // arrivals, fills and squares below the bucket
	bound := upperBound(maxLossZ, 0, 0, weight(1))
	if bound > allowed {
		return passAll
	}
	for b := range buckets {
		next := upperBound(maxLossZ, lost+f.sums[b], variance+f.squares[b], weight(1-(below+a.counts[b])/total))
		if next > allowed {
			dropped := (allowed - bound) / (next - bound)
			return threshold{edge: b, pass: 1 - dropped, share: 1 - (below+dropped*a.counts[b])/total}
		}
		below, lost, variance, bound = below+a.counts[b], lost+f.sums[b], variance+f.squares[b], next
	}
	return passAll
}
