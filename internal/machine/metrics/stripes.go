package metrics

import (
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
)

// stripes holds a copy of a few counters for each core, so that cores do not share cache lines. A reader adds the
// copies up. BenchmarkCores, here and in internal/ssp/pool, shows what stripes save.
type stripes struct {
	cells []atomic.Uint64
	width int // distance between the beginnings of two stripes, in words
	words int // words in use of each stripe
	mask  int // number of stripes, which is a power of two, minus one
}

const (
	// lineWords is the size of a cache line of 64 bytes, in words. The last word of a stripe and the first word of
	// the next stripe are at least this far apart.
	lineWords = 8
	// maxStripes bounds the memory: 16 stripes of a usual histogram take 3 KB.
	maxStripes = 16
)

// The words of a histogram's stripe: the sum of the observed values, in nanoseconds, and the count of each fine
// bucket. The sum is sumHigh·sumCarry + sumLow, where sumLow is an int64. One word alone would overflow within weeks
// if thousands of places are in use at once. The sum stands beside the low buckets, into which most values fall, so
// that an observation touches one cache line.
const (
	sumLow = iota
	sumHigh
	firstCount
)

const sumCarry = 1 << 62

// newStripes returns stripes of the given number of words, one stripe for each core that the process uses now.
func newStripes(used int) stripes {
	n := 1
	for n < min(runtime.GOMAXPROCS(0), maxStripes) {
		n *= 2
	}
	width := used + lineWords
	return stripes{cells: make([]atomic.Uint64, n*width), width: width, words: used, mask: n - 1}
}

// own returns the stripe of the caller's core. The caller may move to another core at any time, which costs speed but
// loses no count.
func (s *stripes) own() []atomic.Uint64 {
	at := 0
	if s.mask > 0 {
		n := coreNumbers.Get().(*int)
		at = (*n & s.mask) * s.width
		coreNumbers.Put(n)
	}
	return s.cells[at : at+s.words : at+s.words]
}

// sum returns the sum of word i over all stripes.
func (s *stripes) sum(i int) (n uint64) {
	for at := i; at < len(s.cells); at += s.width {
		n += s.cells[at].Load()
	}
	return n
}

// all yields each stripe.
func (s *stripes) all() iter.Seq[[]atomic.Uint64] {
	return func(yield func([]atomic.Uint64) bool) {
		for at := 0; at < len(s.cells); at += s.width {
			if !yield(s.cells[at : at+s.words]) {
				return
			}
		}
	}
}

// Counter counts separately on each core. It is safe for concurrent use. Make one with NewCounter.
type Counter struct{ stripes stripes }

// NewCounter returns a counter at 0.
func NewCounter() *Counter { return &Counter{newStripes(1)} }

// Inc adds one.
func (c *Counter) Inc() { c.stripes.own()[0].Add(1) }

// Load returns the count.
func (c *Counter) Load() uint64 { return c.stripes.sum(0) }

// coreNumbers lends out numbers, which stand for cores. A sync.Pool keeps the number that a core puts back for that
// core, so each busy core tends to have a number of its own.
var (
	coreNumbers = sync.Pool{New: func() any { return &numbers[nextNumber.Add(1)%maxStripes] }}
	nextNumber  atomic.Uint32
	numbers     [maxStripes]int
)

func init() {
	for i := range numbers {
		numbers[i] = i
	}
}
