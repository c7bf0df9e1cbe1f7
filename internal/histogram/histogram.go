// Package histogram counts observations in buckets with two atomic additions
// each, for paths that every request takes.
//
// client_golang's histogram does the same for 2 to 4 times the price (see the
// benchmark), which seven observations a request make felt. This one is read by
// the collectors at scrape time, as a constant histogram of client_golang.
//
// Cores count apart, so that they do not take each other's cache lines: see
// stripes.
package histogram

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram counts values in buckets. It is safe for concurrent use. The unit
// of Observe is the integer that the bounds are given in.
type Histogram struct {
	bounds   []int64   // upper bounds, inclusive, ascending
	exported []float64 // the same in the exported unit
	scale    float64   // what one unit is in the exported unit
	stripes  stripes
}

// New returns a histogram with the given upper bounds, which are inclusive and
// must ascend. Exported values are multiplied by scale.
func New(scale float64, bounds ...int64) *Histogram {
	h := &Histogram{bounds: bounds, scale: scale, stripes: newStripes(firstCount + len(bounds) + 1)}
	for i, b := range bounds {
		if i > 0 && b <= bounds[i-1] {
			panic(fmt.Sprintf("BUG: bounds %v do not ascend", bounds))
		}
		h.exported = append(h.exported, h.export(float64(b)))
	}
	if len(bounds) == 0 {
		panic("BUG: no bounds")
	}
	return h
}

// export returns v in the exported unit. It divides where scale is the inverse
// of an integer, since 35e6 * 1e-9 is not 0.035.
func (h *Histogram) export(v float64) float64 {
	if per := math.Round(1 / h.scale); h.scale < 1 && math.Abs(per*h.scale-1) < 1e-12 {
		return v / per
	}
	return v * h.scale
}

// Durations returns a histogram of durations, exported in seconds.
func Durations(bounds ...time.Duration) *Histogram {
	ns := make([]int64, len(bounds))
	for i, b := range bounds {
		ns[i] = int64(b)
	}
	return New(1e-9, ns...)
}

// Observe counts v, which must not be negative if the sum is to mean anything.
func (h *Histogram) Observe(v int64) {
	// Most values fall into the low buckets: a scan from below beats a binary
	// search at these sizes.
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	own := h.stripes.own()
	own[firstCount+i].Add(1)
	if sum := own[sumLow].Add(uint64(v)); int64(sum) >= sumCarry && own[sumLow].CompareAndSwap(sum, sum-sumCarry) {
		own[sumHigh].Add(1) // whoever loses this race leaves it to the next
	}
}

// ObserveDuration counts d, for a histogram made by Durations. A negative d,
// as two clock readings by different goroutines may give, counts as zero.
func (h *Histogram) ObserveDuration(d time.Duration) { h.Observe(max(int64(d), 0)) }

// Count returns how many values were observed.
func (h *Histogram) Count() uint64 {
	var n uint64
	for i := range len(h.bounds) + 1 {
		n += h.count(i)
	}
	return n
}

// count is how many values are in bucket i.
func (h *Histogram) count(i int) uint64 { return h.stripes.sum(firstCount + i) }

// Sum returns the sum of all values, in the exported unit.
func (h *Histogram) Sum() float64 {
	sum := float64(h.stripes.sum(sumHigh)) * sumCarry
	for own := range h.stripes.all() {
		sum += float64(int64(own[sumLow].Load()))
	}
	return h.export(sum)
}

// Quantile returns an upper bound of the q-quantile (0 < q < 1), in the
// exported unit: the bound of the bucket in which it falls, the highest bound
// where it is above all, and 0 where nothing was observed.
func (h *Histogram) Quantile(q float64) float64 {
	rank := q * float64(h.Count())
	if rank == 0 {
		return 0
	}
	var n float64
	for i := range h.bounds {
		if n += float64(h.count(i)); n >= rank {
			return h.exported[i]
		}
	}
	return h.exported[len(h.exported)-1]
}

// Metric returns the histogram as it is now, under desc with the given label
// values.
func (h *Histogram) Metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.bounds))
	var n uint64
	for i, b := range h.exported {
		n += h.count(i)
		buckets[b] = n
	}
	n += h.count(len(h.bounds))
	return prometheus.MustNewConstHistogram(desc, n, h.Sum(), buckets, labels...)
}
