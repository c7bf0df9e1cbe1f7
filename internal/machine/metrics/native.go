package metrics

import (
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// A native histogram's bucket i ends at 2^(i/4) seconds: each bucket is 19 % wider than the
// previous one.
const (
	nativeSchema = 2
	perDoubling  = 1 << nativeSchema
	nativeFactor = 1.2 // makes client_golang choose nativeSchema
	// beside is the number of buckets below the lowest bound, and above the highest: two doublings
	// each.
	beside = 2 * perDoubling
)

// native holds the buckets of a native histogram of durations. Values up to its lowest bound count
// as zero. The last bucket has all higher values.
type native struct {
	first  int     // number of the bucket that ends at bounds[0]
	bounds []int64 // in nanoseconds, rounded down: values are whole nanoseconds
	whole  []int   // the last fine bucket of each native bucket
}

// The native buckets of every histogram reach at least from nativeFrom to nativeTo, in nanoseconds: few
// exported buckets lie below and above an SSP's usual durations.
const (
	nativeFrom = int64(100 * time.Microsecond)
	nativeTo   = int64(5 * time.Second)
)

func newNative(lowest, highest int64) *native {
	number := func(ns int64) float64 { return math.Log2(float64(ns)*1e-9) * perDoubling }
	n := &native{first: int(math.Floor(number(lowest))) - beside}
	for i := n.first; i <= int(math.Ceil(number(highest)))+beside; i++ {
		n.bounds = append(n.bounds, int64(math.Floor(1e9*math.Exp2(float64(i)/perDoubling))))
	}
	return n
}

// threshold returns the upper bound of the values that count as zero, in seconds.
func (n *native) threshold() float64 { return math.Exp2(float64(n.first) / perDoubling) }

// fill writes the native histogram of counts to m: spans of buckets without gaps, and for each bucket
// the difference between its count and the previous bucket's. A span's offset is the number of
// buckets between two spans; for the first span it is the number of its first bucket.
func (n *native) fill(m *dto.Histogram, counts Counts) {
	at := 0
	upTo := func(last int) (sum uint64) { // counts of the fine buckets up to last
		for ; at <= last; at++ {
			sum += counts[at]
		}
		return sum
	}
	m.Schema, m.ZeroThreshold, m.ZeroCount = new(int32(nativeSchema)), new(n.threshold()), new(upTo(n.whole[0]))
	before, next := int64(0), 0 // the count of the last bucket, and the number after it
	for i := 1; i < len(n.whole); i++ {
		last := n.whole[i]
		if i == len(n.whole)-1 {
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
