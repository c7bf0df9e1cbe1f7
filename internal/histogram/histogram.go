// Package histogram counts observations in buckets with two atomic additions each, for code that
// every request runs.
//
// client_golang's histogram takes 2 to 4 times as long (see the benchmark), which matters for seven
// observations a request. At scrape time, collectors read this one as a constant histogram of
// client_golang.
//
// Each core counts in its own memory, so that cores do not share cache lines: see stripes.
package histogram

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram counts values in buckets. It is safe for concurrent use. The bounds state the unit of
// Observe.
type Histogram struct {
	bounds   []int64   // upper bounds, inclusive, ascending
	exported []float64 // the same in the exported unit
	scale    float64   // one unit in the exported unit
	// Each bucket is counted in parts of the same width, whose upper bounds fine
	// holds. Quantiles are read from the parts; Metric exports whole buckets.
	parts   int
	fine    []int64
	stripes stripes
}

// New returns a histogram with the given upper bounds, which are inclusive and
// must ascend. Exported values are multiplied by scale.
func New(scale float64, bounds ...int64) *Histogram { return newInParts(1, scale, bounds) }

func newInParts(parts int, scale float64, bounds []int64) *Histogram {
	h := &Histogram{bounds: bounds, scale: scale, parts: parts, stripes: newStripes(firstCount + len(bounds)*parts + 1)}
	low := int64(0)
	for i, b := range bounds {
		for part := range int64(parts) {
			h.fine = append(h.fine, low+(b-low)*(part+1)/int64(parts))
		}
		low = b
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

// export returns v in the exported unit. It divides if scale is the inverse of an integer, since
// 35e6 * 1e-9 is not 0.035.
func (h *Histogram) export(v float64) float64 {
	if per := math.Round(1 / h.scale); h.scale < 1 && math.Abs(per*h.scale-1) < 1e-12 {
		return v / per
	}
	return v * h.scale
}

// Durations returns a histogram of durations, exported in seconds.
func Durations(bounds ...time.Duration) *Histogram { return DurationsInParts(1, bounds...) }

// DurationsInParts is Durations with quantiles that are as many times as fine.
func DurationsInParts(parts int, bounds ...time.Duration) *Histogram {
	ns := make([]int64, len(bounds))
	for i, b := range bounds {
		ns[i] = int64(b)
	}
	return newInParts(parts, 1e-9, ns)
}

// Observe counts v, which must not be negative if the sum is to mean anything.
func (h *Histogram) Observe(v int64) {
	// Most values fall into the low buckets: a scan from below beats a binary
	// search at these sizes.
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	if i *= h.parts; h.parts > 1 {
		for i < len(h.fine) && v > h.fine[i] {
			i++
		}
	}
	own := h.stripes.own()
	own[firstCount+i].Add(1)
	if sum := own[sumLow].Add(uint64(v)); int64(sum) >= sumCarry && own[sumLow].CompareAndSwap(sum, sum-sumCarry) {
		own[sumHigh].Add(1) // a goroutine that loses this race leaves the carry to the next
	}
}

// ObserveDuration counts d, for a histogram made by Durations. A negative d,
// as two clock readings by different goroutines may give, counts as zero.
func (h *Histogram) ObserveDuration(d time.Duration) { h.Observe(max(int64(d), 0)) }

// Count returns how many values were observed.
func (h *Histogram) Count() uint64 {
	var n uint64
	for i := range len(h.fine) + 1 {
		n += h.count(i)
	}
	return n
}

// count is how many values are in part i of all buckets; the last is above all bounds.
func (h *Histogram) count(i int) uint64 { return h.stripes.sum(firstCount + i) }

// Sum returns the sum of all values, in the exported unit.
func (h *Histogram) Sum() float64 {
	sum := float64(h.stripes.sum(sumHigh)) * sumCarry
	for own := range h.stripes.all() {
		sum += float64(int64(own[sumLow].Load()))
	}
	return h.export(sum)
}

// Counts are the observations of a histogram up to some moment.
type Counts []uint64

// Counts returns the observations so far.
func (h *Histogram) Counts() Counts {
	counts := make(Counts, len(h.fine)+1)
	for i := range counts {
		counts[i] = h.count(i)
	}
	return counts
}

// Sub returns the observations that came after before was read.
func (c Counts) Sub(before Counts) Counts {
	since := make(Counts, len(c))
	for i := range c {
		since[i] = c[i] - min(before[i], c[i])
	}
	return since
}

// Quantile is QuantileOf all observations so far.
func (h *Histogram) Quantile(q float64) float64 { return h.QuantileOf(q, h.Counts()) }

// QuantileOf returns an upper bound of the q-quantile (0 < q < 1) of counts, in the exported unit.
// It is the bound of the part in which the quantile falls, or the highest bound if it is above all.
// Without observations it is 0.
func (h *Histogram) QuantileOf(q float64, counts Counts) float64 {
	var total, n uint64
	for _, c := range counts {
		total += c
	}
	if total == 0 {
		return 0
	}
	for i, b := range h.fine {
		if n += counts[i]; float64(n) >= q*float64(total) {
			return h.export(float64(b))
		}
	}
	return h.exported[len(h.exported)-1]
}

// Metric returns the histogram as it is now, under desc with the given label
// values.
func (h *Histogram) Metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.bounds))
	var n uint64
	for i := range h.fine {
		n += h.count(i)
		if (i+1)%h.parts == 0 {
			buckets[h.exported[i/h.parts]] = n
		}
	}
	n += h.count(len(h.fine))
	return prometheus.MustNewConstHistogram(desc, n, h.Sum(), buckets, labels...)
}
