package metrics

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Histogram counts durations in buckets. An observation costs two atomic additions. A Histogram is safe for
// concurrent use, and is exported in seconds, with classic and native buckets.
//
// It is for what each request observes. A native histogram of client_golang takes more than twice the CPU
// (BenchmarkObserve), and cores share its cache lines; ARCHITECTURE.md has the figures. In a Histogram, each core
// counts in memory of its own: see stripes. NewDurations makes the histograms of rarer events.
type Histogram struct {
	*layout
	stripes   stripes
	exemplars exemplars
}

// NewDurations returns client_golang's histogram for durations in seconds, with these buckets and the native buckets
// of a Histogram. It is for events that are rarer than requests.
func NewDurations(buckets ...float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Buckets: buckets, NativeHistogramBucketFactor: nativeFactor, NativeHistogramZeroThreshold: 20e-6,
	})
}

// Durations returns a histogram with the given upper bounds, which are inclusive and must ascend. Without bounds, the
// histogram has native buckets only, and is three series for a scrape that does not read them.
func Durations(bounds ...time.Duration) *Histogram { return DurationsInParts(1, bounds...) }

// DurationsInParts is Durations with at least parts fine buckets in each bucket, which makes quantiles more precise.
func DurationsInParts(parts int, bounds ...time.Duration) *Histogram {
	l := layoutOf(parts, bounds)
	return &Histogram{layout: l, stripes: newStripes(firstCount + len(l.fine) + 1)}
}

// RequestDurations returns a histogram of durations with buckets around the usual deadlines of ad requests: bidders
// get 80 to 1000 ms, and most respond within 250 ms. From 100 ms on, no bucket is wider than half of its lower bound, and up
// to 300 ms, where most deadlines are, none is wider than 50 ms. There are few buckets, since each bucket is a series
// for each SSP. The quantiles of the page and the native buckets are finer.
func RequestDurations() *Histogram {
	const ms = time.Millisecond
	return DurationsInParts(4, 10*ms, 20*ms, 50*ms, 100*ms, 150*ms, 200*ms, 250*ms, 300*ms, 400*ms, 500*ms, 750*ms, 1000*ms)
}

// ObserveDuration counts d. A negative d counts as zero; clock readings of two goroutines may produce one.
func (h *Histogram) ObserveDuration(d time.Duration) {
	own := h.stripes.own()
	v := max(int64(d), 0)
	own[firstCount+h.fineBucket(v)].Add(1)
	if sum := own[sumLow].Add(uint64(v)); int64(sum) >= sumCarry && own[sumLow].CompareAndSwap(sum, sum-sumCarry) {
		own[sumHigh].Add(1) // a goroutine that loses this race leaves the carry to the next goroutine
	}
}

// fineBucket returns the index of v's fine bucket. v must not be negative.
func (l *layout) fineBucket(v int64) int {
	i := int(l.firstFine[bits.Len64(uint64(v))])
	for i < len(l.fine) && v > l.fine[i] {
		i++
	}
	return i
}

// Count returns how many durations were observed.
func (h *Histogram) Count() uint64 {
	var n uint64
	for i := range len(h.fine) + 1 {
		n += h.count(i)
	}
	return n
}

// count returns how many durations are in fine bucket i. The last fine bucket is above all bounds.
func (h *Histogram) count(i int) uint64 { return h.stripes.sum(firstCount + i) }

// Sum returns the sum of all durations, in seconds.
func (h *Histogram) Sum() float64 {
	sum := float64(h.stripes.sum(sumHigh)) * sumCarry
	for own := range h.stripes.all() {
		sum += float64(int64(own[sumLow].Load()))
	}
	return seconds(sum)
}

// Write writes the histogram into out. It is that method of prometheus.Metric.
func (h *Histogram) Write(out *dto.Metric) error {
	counts, exemplars := h.Counts(), h.exemplars.copy()
	cumulative := h.cumulative(counts)
	m := &dto.Histogram{SampleCount: &cumulative[len(cumulative)-1], SampleSum: new(h.Sum())}
	for i := range cumulative {
		b := &dto.Bucket{CumulativeCount: &cumulative[i]}
		if exemplars != nil {
			b.Exemplar = exemplars[i]
		}
		switch {
		case i < len(h.exported):
			b.UpperBound = &h.exported[i] // read only
		case b.Exemplar == nil:
			continue // readers add the bucket up to +Inf by themselves
		default:
			b.UpperBound = new(math.Inf(1))
		}
		m.Bucket = append(m.Bucket, b)
	}
	h.native.fill(m, counts)
	out.Histogram = m
	return nil
}

// Counts holds the number of observations in each fine bucket of a histogram.
type Counts []uint64

// Counts returns the observations so far. It reads stripe by stripe, in the order of memory, since a scrape reads
// some 50,000 fine buckets for each core.
func (h *Histogram) Counts() Counts {
	sum := make(Counts, len(h.fine)+1)
	for own := range h.stripes.all() {
		counts := own[firstCount:][:len(sum)]
		for i := range counts {
			sum[i] += counts[i].Load()
		}
	}
	return sum
}

// Sub returns the observations that were made after before was read.
func (c Counts) Sub(before Counts) Counts {
	since := slices.Clone(c)
	for i := range before {
		since[i] -= min(before[i], c[i])
	}
	return since
}

// Quantile is QuantileOf for all observations so far.
func (h *Histogram) Quantile(q float64) float64 { return h.QuantileOf(q, h.Counts()) }

// QuantileOf returns an upper bound of the q-quantile (0 < q < 1) of counts, in seconds. The upper bound is that of
// the fine bucket into which the quantile falls, but at most the highest exported bound. Without observations the
// result is 0.
func (h *Histogram) QuantileOf(q float64, counts Counts) float64 {
	var total, n uint64
	for _, c := range counts {
		total += c
	}
	if total == 0 {
		return 0
	}
	for i, b := range h.fine {
		n += counts[i]
		if float64(n) >= q*float64(total) {
			return min(seconds(float64(b)), h.exported[len(h.exported)-1])
		}
	}
	return h.exported[len(h.exported)-1]
}
