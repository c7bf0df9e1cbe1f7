package shaper

import (
	"cmp"
	"math"
	"slices"
)

// Kept is the share of an SSP's fills that a limit would keep.
type Kept struct {
	Limit   float64 `json:"limit"`    // requests a second
	Share   float64 `json:"share"`    // of the requests that arrive, which the limit lets through
	InForce bool    `json:"in_force"` // it is the limit of the settings

	// The share of the fills: an estimate, and the bounds of its 95 % interval.
	Low      float64 `json:"low"`
	Estimate float64 `json:"estimate"`
	High     float64 `json:"high"`
}

// unlearned returns the share of the fills that simulations lost because a limit, which lets the given share of the
// requests pass, leaves fewer outcomes to learn from: at 10 % 2 to 7 points, at 20 % 1 to 3, at 40 % 0 to 1.
func unlearned(share float64) float64 { return 0.0008 / (share * share) }

// forecast says what limits would keep, in ascending order: some shares of the requests that arrive, and the limit in
// force. It is nil while s is cold, or if no requests have arrived in the window.
func (s *Shaper) forecast(w *Window) (all []Kept) {
	rate := w.Arrivals / w.Time.Seconds()
	if s.ledger.cold() || rate == 0 {
		return nil
	}
	for _, share := range [...]float64{0.1, 0.2, 0.4, 0.6, 0.8} {
		all = append(all, Kept{Limit: share * rate, Share: share})
	}
	if limit := s.settings.Limit; limit > 0 {
		all = append(all, Kept{Limit: limit, Share: limit / rate, InForce: true})
		slices.SortFunc(all, func(a, b Kept) int { return cmp.Compare(a.Limit, b.Limit) })
	}
	teaching := s.threshold.share // of the requests, without explored ones
	if s.settings.DryRun {
		teaching = 1
		if s.settings.Limits && s.settings.Limit > 0 {
			teaching = min(1, s.settings.Limit/rate)
		}
	}
	for i := range all {
		k := &all[i]
		s.fills.forecast(k, s.settings.Explore, s.weight)
		less := unlearned(min(1, k.Share)) - unlearned(teaching)
		k.Low = max(0, k.Low-max(0, less))
		k.High = min(1, k.High+max(0, -less))
	}
	return all
}

// forecast estimates the fills that the limit of k would have kept, explored ones included, while f collected fills and
// arrivals. weight is that of the next explored fill.
func (f *fillsByScore) forecast(k *Kept, explore, weight float64) {
	a := arrivals{counts: f.arrivals, rate: 1}
	t := a.forLimit(k.Share * (1 - explore))
	var sums, squares [2]float64 // below the threshold, and from it on
	for b := range buckets {
		passed := t.chance(b, 0)
		for i, share := range [2]float64{1 - passed, passed} {
			sums[i] += share * f.sums[b]
			squares[i] += share * f.squares[b]
		}
	}
	lowBelow, highBelow := interval(sums[0], squares[0], weight)
	if sums[1] > 0 {
		weight = squares[1] / sums[1] // the mean one: most of these fills were not explored
	}
	lowAbove, highAbove := interval(sums[1], squares[1], weight)
	dropped := 1 - exploration(explore, t.share) // of the requests below the threshold; 0 from the limit at which all pass
	kept := func(below, above float64) float64 {
		if below == 0 {
			return 1
		}
		return 1 - dropped*below/(below+above)
	}
	// Both sums are uncertain, and independent: the distances from the estimate to the bounds add up as squares.
	k.Estimate = kept(sums[0], sums[1])
	k.Low = max(0, k.Estimate-math.Hypot(k.Estimate-kept(highBelow, sums[1]), k.Estimate-kept(sums[0], lowAbove)))
	k.High = min(1, k.Estimate+math.Hypot(kept(lowBelow, sums[1])-k.Estimate, kept(sums[0], highAbove)-k.Estimate))
}
