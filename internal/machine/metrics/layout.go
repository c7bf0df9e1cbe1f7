package metrics

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// layout holds the bounds of a histogram's buckets. It never changes, and histograms with the same bounds share a
// layout.
//
// Values are counted in fine buckets. Each fine bucket lies within one exported bucket and within one native bucket,
// so that one addition counts for both.
type layout struct {
	bounds    []int64    // upper bounds in nanoseconds, inclusive, ascending
	exported  []float64  // the same bounds in seconds
	fine      []int64    // upper bounds of the fine buckets, in nanoseconds
	firstFine [65]uint16 // by the bit length of a value: the first fine bucket that may hold the value
	lastFine  []int      // by exported bucket: its last fine bucket
	native    *native
}

var layouts sync.Map // arguments of layoutOf, as text, to *layout; the map is small, since all bounds are constants

// layoutOf returns the layout with these bounds and at least parts fine buckets in each bucket.
func layoutOf(parts int, bounds []time.Duration) *layout {
	key := fmt.Sprint(parts, bounds)
	if l, ok := layouts.Load(key); ok {
		return l.(*layout)
	}
	l, _ := layouts.LoadOrStore(key, newLayout(parts, bounds))
	return l.(*layout)
}

func newLayout(parts int, bounds []time.Duration) *layout {
	l := &layout{}
	low, lowest := int64(0), nativeFrom
	if len(bounds) > 0 {
		lowest = min(lowest, int64(bounds[0]))
	}
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
	l.native = newNative(lowest, max(low, nativeTo))
	l.fine = append(l.fine, l.native.bounds...)
	slices.Sort(l.fine)
	l.fine = slices.Compact(l.fine)
	for n := range l.firstFine {
		lowest := int64(0)
		if n > 0 {
			lowest = int64(uint64(1) << (n - 1))
		}
		if n == 64 {
			lowest = math.MaxInt64 // no int64 has 64 significant bits
		}
		at, _ := slices.BinarySearch(l.fine, lowest)
		l.firstFine[n] = uint16(at)
	}
	l.lastFine = l.fineIndexes(l.bounds)
	l.native.lastFine = l.fineIndexes(l.native.bounds)
	return l
}

// fineIndexes returns the index of each bound in fine.
func (l *layout) fineIndexes(bounds []int64) []int {
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
	for _, last := range l.lastFine {
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
