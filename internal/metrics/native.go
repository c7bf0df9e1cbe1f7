package metrics

import "math"

// A native histogram's bucket i ends at 2^(i/4) seconds: each bucket is 19 % wider than the
// previous one.
const (
	nativeSchema = 2
	perDoubling  = 1 << nativeSchema
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

// nativeCounts is a native histogram in protobuf's form: spans of buckets without gaps, and for
// each bucket the difference between its count and the previous bucket's.
type nativeCounts struct {
	Schema        int32
	ZeroThreshold float64
	ZeroCount     uint64
	Spans         []span
	Deltas        []int64
}

// span is a run of buckets without a gap. Offset is the number of buckets between two spans; for
// the first span it is the number of its first bucket.
type span struct {
	Offset int32
	Length uint32
}

// fillNative writes the native histogram of counts to n, and reuses n's memory. It returns false if
// the histogram has no native form.
func (l *layout) fillNative(n *nativeCounts, counts Counts) bool {
	if l.native == nil {
		return false
	}
	whole, at := l.native.whole, 0
	upTo := func(last int) (sum uint64) { // counts of the fine buckets up to last
		for ; at <= last; at++ {
			sum += counts[at]
		}
		return sum
	}
	n.Schema, n.ZeroThreshold, n.ZeroCount = nativeSchema, l.native.threshold(), upTo(whole[0])
	n.Spans, n.Deltas = n.Spans[:0], n.Deltas[:0]
	before, next := int64(0), 0 // the count of the last bucket, and the number after it
	for i := 1; i < len(whole); i++ {
		last := whole[i]
		if i == len(whole)-1 {
			last = len(counts) - 1
		}
		count := int64(upTo(last))
		if count == 0 {
			continue
		}
		number := l.native.first + i
		if len(n.Spans) == 0 || number != next {
			n.Spans = append(n.Spans, span{Offset: int32(number - next)})
		}
		n.Spans[len(n.Spans)-1].Length++
		n.Deltas = append(n.Deltas, count-before)
		before, next = count, number+1
	}
	return true
}
