package metrics

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Bucket i of a native histogram ends at 2^(i/4) seconds: each bucket is 19 % wider than the previous bucket.
const (
	nativeSchema       = 2
	bucketsPerDoubling = 1 << nativeSchema
	nativeFactor       = 1.2 // the factor for which client_golang chooses nativeSchema
	// margin is the number of native buckets below the lowest bound, and above the highest bound: two doublings each.
	margin = 2 * bucketsPerDoubling
)

// native holds the buckets of a native histogram of durations. Values up to bounds[0] count as zero. The last bucket
// also has all higher values.
type native struct {
	first    int     // number of the bucket that ends at bounds[0]
	bounds   []int64 // upper bounds in nanoseconds, rounded down, since values are whole nanoseconds
	lastFine []int   // by native bucket: its last fine bucket
}

// The native buckets of every histogram reach at least from nativeFrom to nativeTo, in nanoseconds. The exported
// buckets do not: few of them lie below and above an SSP's usual durations.
const (
	nativeFrom = int64(100 * time.Microsecond)
	nativeTo   = int64(5 * time.Second)
)

func newNative(lowest, highest int64) *native {
	number := func(ns int64) float64 { return math.Log2(float64(ns)*1e-9) * bucketsPerDoubling }
	n := &native{first: int(math.Floor(number(lowest))) - margin}
	for i := n.first; i <= int(math.Ceil(number(highest)))+margin; i++ {
		n.bounds = append(n.bounds, int64(math.Floor(1e9*math.Exp2(float64(i)/bucketsPerDoubling))))
	}
	return n
}

// threshold returns the upper bound of the values that count as zero, in seconds.
func (n *native) threshold() float64 { return math.Exp2(float64(n.first) / bucketsPerDoubling) }

// fill writes the native histogram of counts to m. It consists of spans of buckets without gaps, and of the
// difference between each bucket's count and the count of the bucket before it. A span's offset is the number of
// empty buckets since the previous span; for the first span it is the number of the first bucket.
func (n *native) fill(m *dto.Histogram, counts Counts) {
	at := 0
	upTo := func(last int) (sum uint64) { // sums the fine buckets from at to last
		for ; at <= last; at++ {
			sum += counts[at]
		}
		return sum
	}
	m.Schema, m.ZeroThreshold, m.ZeroCount = new(int32(nativeSchema)), new(n.threshold()), new(upTo(n.lastFine[0]))
	before, next := int64(0), 0 // the count of the previous bucket in a span, and the number that would continue the span
	for i := 1; i < len(n.lastFine); i++ {
		last := n.lastFine[i]
		if i == len(n.lastFine)-1 {
			last = len(counts) - 1
		}
		count := int64(upTo(last))
		if count == 0 {
			continue
		}
		number := n.first + i
		if len(m.PositiveSpan) == 0 || number != next {
			m.PositiveSpan = append(m.PositiveSpan, &dto.BucketSpan{Offset: new(int32(number - next)), Length: new(uint32)})
		}
		*m.PositiveSpan[len(m.PositiveSpan)-1].Length++
		m.PositiveDelta = append(m.PositiveDelta, count-before)
		before, next = count, number+1
	}
}
