// Package costtest holds what a hostile input costs against what a common one
// does. Only tests use it.
package costtest

import (
	"syscall"
	"testing"
	"time"
)

// Best is the shortest of many times that f takes. Noise only lengthens times, so
// two of them can be compared on a busy machine.
func Best(f func()) time.Duration {
	shortest := time.Hour
	for range 50 {
		start := time.Now()
		f()
		shortest = min(shortest, time.Since(start))
	}
	return shortest
}

// CPU is the CPU time that the process has used, in the kernel too.
func CPU(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// limit is how many times a common input a hostile one may cost, for each time that
// it is as long, and once more: what is short has a price too.
const limit = 6

// Common is a common input: how many bytes it has, and what it takes.
type Common struct {
	Bytes int
	Took  time.Duration
}

// Hold fails the test if a hostile input of n bytes takes too long.
func (c Common) Hold(t testing.TB, name string, n int, took time.Duration) {
	t.Helper()
	times := float64(took) / float64(c.Took) / (1 + float64(n)/float64(c.Bytes))
	t.Logf("%4.1f  %s: %d bytes in %v", times, name, n, took)
	if times > limit {
		t.Errorf("%s: %d bytes take %v, %.1f times as long as common ones", name, n, took, times)
	}
}
