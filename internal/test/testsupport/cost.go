package testsupport

import (
	"syscall"
	"testing"
	"time"
)

// Shortest returns the shortest of many CPU times of f. Noise only lengthens times, so two results
// can be compared on a busy machine.
func Shortest(f func()) time.Duration {
	shortest := time.Hour
	for range 50 {
		shortest = min(shortest, ThreadTime(f))
	}
	return shortest
}

// CPUTime returns the CPU time of the process, with its time in the kernel.
func CPUTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// costLimit bounds the cost of a hostile input, as a multiple of a common input's cost. For an
// input that is n times as long, the bound is costLimit × (n + 1): a short input has a fixed cost
// too.
const costLimit = 6

// CommonInput is a common input: its length in bytes, and a function that measures its cost.
type CommonInput struct {
	Bytes int
	Cost  func() time.Duration
}

// Hold fails the test if a hostile input of n bytes costs too much. The speed of a virtual machine's
// processor may change between the measurements of the two inputs, so the majority of three decides,
// unless the first is below half of the limit.
func (c CommonInput) Hold(t testing.TB, name string, n int, cost func() time.Duration) {
	t.Helper()
	cheap, dear := 0, 0
	for cheap < 2 && dear < 2 {
		took, common := cost(), c.Cost()
		times := float64(took) / float64(common) / (1 + float64(n)/float64(c.Bytes))
		t.Logf("%4.1f  %s: %d bytes in %v, common ones in %v", times, name, n, took, common)
		switch {
		case times <= costLimit/2 && dear == 0:
			return
		case times <= costLimit:
			cheap++
		default:
			dear++
		}
	}
	if dear == 2 {
		t.Errorf("%s: %d bytes cost more than %d times as much as common ones, in two of three measurements", name, n, costLimit)
	}
}
