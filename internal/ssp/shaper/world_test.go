//go:build !race

package shaper

import (
	"math"
	"math/rand/v2"
	"slices"
)

// world is the traffic of a simulation, and how an SSP fills it. Its segments have three keys. The rates of most of them
// are distributed log-normally around one fill in a thousand requests; a tenth of the segments fills 5 to 40 %. Which ones
// do depends on all three keys. Traffic is distributed over the segments by Zipf's law.
type world struct {
	random *rand.Rand
	leaves []leaf
	draws  alias

	forged     float64 // share of requests with made-up values
	forgedFrom int     // the coarsest key whose values are made up; coarser ones are those of a request
	forgeds    int     // how many made-up values there are; 0: each request has a new one
	values     uint64  // the last new value of a key
	byRate     []int   // leaves, the best first; nil after a change
}

// leaf is a segment.
type leaf struct {
	values [3]uint64
	share  float64 // of the traffic without made-up values
	tilt   float64 // how likely the first two keys make it that the leaf is good
	rate   float64 // of fills
	rank   int     // by traffic
}

const forgedRate = 0.001 // rate of fills of made-up values

// newWorld returns a world whose keys have the given numbers of values, each below one of the coarser key.
func newWorld(seed uint64, keys [3]int) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 39))}
	for a := range keys[0] {
		tiltA := w.random.NormFloat64()
		for b := range keys[1] {
			tiltB := w.random.NormFloat64()
			for c := range keys[2] {
				values := [3]uint64{uint64(a), uint64(b), uint64(c)}
				w.leaves = append(w.leaves, leaf{values: values, tilt: 0.7 * (tiltA + tiltB)})
			}
		}
	}
	w.values = 1 << 32
	var sum float64
	ranks := w.random.Perm(len(w.leaves))
	for i, rank := range ranks {
		w.leaves[i].rank = rank
		w.leaves[i].share = 1 / float64(rank+1)
		sum += w.leaves[i].share
	}
	shares := make([]float64, len(w.leaves))
	all := make([]int, len(w.leaves))
	for i := range w.leaves {
		w.leaves[i].share /= sum
		shares[i], all[i] = w.leaves[i].share, i
	}
	w.draws = newAlias(shares)
	w.redraw(all)
	return w
}

// redraw gives the leaves new rates: a tenth of them becomes good.
func (w *world) redraw(leaves []int) {
	score := make(map[int]float64, len(leaves))
	for _, i := range leaves {
		score[i] = w.leaves[i].tilt + w.random.NormFloat64()
	}
	order := slices.Clone(leaves)
	slices.SortFunc(order, func(a, b int) int {
		if score[a] > score[b] || score[a] == score[b] && a < b {
			return -1
		}
		return 1
	})
	for n, i := range order {
		if n < (len(order)+9)/10 {
			w.makeGood(i)
		} else {
			w.makeBad(i)
		}
	}
}

func (w *world) makeGood(i int) {
	w.leaves[i].rate = 0.05 * math.Pow(8, w.random.Float64())
	w.byRate = nil
}

func (w *world) makeBad(i int) {
	w.leaves[i].rate = min(0.049, 0.001*math.Exp(1.5*w.random.NormFloat64()))
	w.byRate = nil
}

func (w *world) good(i int) bool { return w.leaves[i].rate >= 0.05 }

// some returns leaves, drawn at random, that fulfil the condition and of which the sum of the measure reaches the given
// share of the sum over all leaves.
func (w *world) some(share float64, condition func(i int) bool, measure func(i int) float64) (leaves []int) {
	var total, sum float64
	for i := range w.leaves {
		total += measure(i)
	}
	for _, i := range w.random.Perm(len(w.leaves)) {
		if sum < share*total && condition(i) {
			sum += measure(i)
			leaves = append(leaves, i)
		}
	}
	return leaves
}

func (w *world) any(int) bool          { return true }
func (w *world) traffic(i int) float64 { return w.leaves[i].share }
func (w *world) fillsOf(i int) float64 { return w.leaves[i].share * w.leaves[i].rate }
func (w *world) one(i int) float64     { return 1 }
func (w *world) goodOne(i int) float64 { return map[bool]float64{true: 1}[w.good(i)] }
func (w *world) die(leaves []int)      { w.each(leaves, w.makeBad) }
func (w *world) each(l []int, f func(int)) {
	for _, i := range l {
		f(i)
	}
}

// drift redraws a fifth of the traffic, and a quarter of the good segments die.
func (w *world) drift() {
	w.redraw(w.some(0.2, w.any, w.traffic))
	w.die(w.some(0.25, w.good, w.goodOne))
}

// renew replaces the values of the leaves' last key, and their rates.
func (w *world) renew(leaves []int) {
	for _, i := range leaves {
		w.values++
		w.leaves[i].values[2] = w.values
	}
	w.redraw(leaves)
}

// draw returns the segment of a request, and its rate of fills.
func (w *world) draw(seg *Segment) (rate float64, which int) {
	which = w.draws.draw(w.random)
	l := &w.leaves[which]
	values, rate := l.values, l.rate
	if w.forged > 0 && w.random.Float64() < w.forged {
		rate = forgedRate
		w.values++
		value := w.values
		if w.forgeds > 0 {
			value = 1<<40 + uint64(w.random.IntN(w.forgeds))
		}
		for k := w.forgedFrom; k < 3; k++ {
			values[k] = value
		}
	}
	for k, v := range values {
		seg.set(k, v*0x9e3779b97f4a7c15)
	}
	return rate, which
}

// sorted returns the leaves, the best first.
func (w *world) sorted() []int {
	if w.byRate == nil {
		for i := range w.leaves {
			w.byRate = append(w.byRate, i)
		}
		slices.SortFunc(w.byRate, func(a, b int) int {
			if w.leaves[a].rate > w.leaves[b].rate {
				return -1
			}
			return 1
		})
	}
	return w.byRate
}

// oracle returns how many fills a request brings on average, if the given share of all requests is sent, the best ones.
func (w *world) oracle(share float64) (fills float64) {
	left, forged := min(share, 1), w.forged
	take := func(n, rate float64) {
		n = min(n, left)
		left -= n
		fills += n * rate
	}
	for _, i := range w.sorted() {
		l := &w.leaves[i]
		if l.rate < forgedRate {
			take(forged, forgedRate)
			forged = 0
		}
		if take(l.share*(1-w.forged), l.rate); left <= 0 {
			return fills
		}
	}
	take(forged, forgedRate)
	return fills
}

// savings returns the share of requests that need not be sent, if the given share of fills may be lost.
func (w *world) savings(maxLoss float64) (share float64) {
	left := maxLoss * w.oracle(1)
	for _, i := range slices.Backward(w.sorted()) {
		l := &w.leaves[i]
		if n := min(l.share, left/l.rate); n < l.share {
			return share + n
		}
		share, left = share+l.share, left-l.share*l.rate
	}
	return share
}

// alias draws numbers with given probabilities, by Walker's method.
type alias struct {
	own   []float64
	other []int
}

func newAlias(shares []float64) alias {
	n := len(shares)
	a := alias{make([]float64, n), make([]int, n)}
	var small, large []int
	for i, p := range shares {
		if a.own[i] = p * float64(n); a.own[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		a.other[s] = l
		if a.own[l] -= 1 - a.own[s]; a.own[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, i := range append(small, large...) {
		a.own[i] = 1
	}
	return a
}

func (a *alias) draw(random *rand.Rand) int {
	x := random.Float64() * float64(len(a.own))
	i := int(x)
	if x-float64(i) < a.own[i] {
		return i
	}
	return a.other[i]
}
