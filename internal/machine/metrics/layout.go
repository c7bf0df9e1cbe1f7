package metrics

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// layout holds the bounds of a histogram's buckets. It never changes, and histograms with the same
// bounds share it.
//
// Values are counted in fine buckets. Each fine bucket is within one exported bucket, and within
// one bucket of the native histogram, so that one addition counts for both.
type layout struct {
	bounds   []int64    // upper bounds in nanoseconds, inclusive, ascending
	exported []float64  // bounds in seconds
	fine     []int64    // upper bounds of the fine buckets
	starts   [65]uint16 // index: number of bits of a value; the first fine bucket that the value may be in
	whole    []int      // the last fine bucket of each exported bucket
	native   *native
}

var layouts sync.Map // text to *layout; the code defines all bounds, so the map is bounded

// layoutOf returns the layout of bounds. Each bucket has at least parts fine buckets.
func layoutOf(parts int, bounds []time.Duration) *layout {
	key := fmt.Sprint(parts, bounds)
	if l, ok := layouts.Load(key); ok {
		return l.(*layout)
	}
	l, _ := layouts.LoadOrStore(key, newLayout(parts, bounds))
	return l.(*layout)
}

func newLayout(parts int, bounds []time.Duration) *layout {
	if len(bounds) == 0 {
		panic("BUG: no bounds")
	}
	l := &layout{}
	low := int64(0)
	for i, bound := range bounds {
		b := int64(bound)
		if i > 0 && b <= low {
			panic(fmt.Sprintf("BUG: bounds %v do not ascend", bounds))
		}
		for part := range int64(parts) {
			l.fine = append(l.fine, low+(b-low)*(part+1)/int64(parts))
		}
		low = b
		l.bounds, l.exported = append(l.bounds, b), append(l.exported, seconds(float64(b)))
	}
	l.native = newNative(min(l.bounds[0], nativeFrom), max(low, nativeTo))
	l.fine = append(l.fine, l.native.bounds...)
	slices.Sort(l.fine)
	l.fine = slices.Compact(l.fine)
	for n := range l.starts {
		least := int64(0)
		if n > 0 {
			least = int64(uint64(1) << (n - 1))
		}
		if n == 64 {
			least = math.MaxInt64 // no value has so many bits
		}
		at, _ := slices.BinarySearch(l.fine, least)
		l.starts[n] = uint16(at)
	}
	l.whole = l.indexes(l.bounds)
	l.native.whole = l.indexes(l.native.bounds)
	return l
}

// indexes returns the index of each bound in fine.
func (l *layout) indexes(bounds []int64) []int {
	all := make([]int, len(bounds))
	for i, b := range bounds {
		all[i], _ = slices.BinarySearch(l.fine, b)
	}
	return all
}

// seconds returns nanoseconds in seconds.
func seconds(ns float64) float64 { return ns / 1e9 }

// cumulative returns the number of values up to each exported bound, and the total number.
func (l *layout) cumulative(c Counts) []uint64 {
	all := make([]uint64, 0, len(l.bounds)+1)
	n, next := uint64(0), 0
	for _, last := range l.whole {
		for _, count := range c[next : last+1] {
			n += count
		}
		all, next = append(all, n), last+1
	}
	for _, count := range c[next:] {
		n += count
	}
	return append(all, n)
}
