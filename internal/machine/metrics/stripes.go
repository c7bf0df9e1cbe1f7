package metrics

import (
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
)

// stripes holds a copy of a few words for each core, so that cores do not share cache lines; a
// reader adds the copies up. BenchmarkCores here and in internal/ssp/pool shows what they save.
type stripes struct {
	words []atomic.Uint64
	width int // words from one stripe to the next
	used  int // of width
	mask  int // the number of stripes, a power of two, minus one
}

const (
	// lineWords is a cache line, of 64 bytes. The last word of a stripe and the first of the next
	// are at least this far apart.
	lineWords = 8
	// maxStripes bounds the memory: 16 stripes of a usual histogram are 3 KB.
	maxStripes = 16
)

// The words of a histogram's stripe. The sum is sumHigh·sumCarry + sumLow, which is an int64:
// nanoseconds alone would overflow within weeks if thousands of places are in use at once. The
// words of the sum are beside the low buckets, into which most values fall, so that one observation
// touches one cache line.
const (
	sumLow = iota
	sumHigh
	firstCount
)

const sumCarry = 1 << 62

// newStripes returns stripes for the cores that the process uses now.
func newStripes(used int) stripes {
	n := 1
	for n < min(runtime.GOMAXPROCS(0), maxStripes) {
		n *= 2
	}
	width := used + lineWords
	return stripes{words: make([]atomic.Uint64, n*width), width: width, used: used, mask: n - 1}
}

// own returns the stripe of the caller's core. The caller may move to another core at any time; the
// counts are still right.
func (s *stripes) own() []atomic.Uint64 {
	at := 0
	if s.mask > 0 {
		n := coreNumbers.Get().(*int)
		at = (*n & s.mask) * s.width
		coreNumbers.Put(n)
	}
	return s.words[at : at+s.used : at+s.used]
}

// sum adds word i of all stripes up.
func (s *stripes) sum(i int) (n uint64) {
	for at := i; at < len(s.words); at += s.width {
		n += s.words[at].Load()
	}
	return n
}

// all yields each stripe.
func (s *stripes) all() iter.Seq[[]atomic.Uint64] {
	return func(yield func([]atomic.Uint64) bool) {
		for at := 0; at < len(s.words); at += s.width {
			if !yield(s.words[at : at+s.used]) {
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

// coreNumbers lends the caller's core its number. A sync.Pool keeps what a core has put back for that
// core, so each busy core has a number of its own.
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
