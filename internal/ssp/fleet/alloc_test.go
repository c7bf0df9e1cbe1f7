//go:build !race

package fleet

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// Requests and their refusals allocate nothing, leased or alone.
func TestTakeAllocatesNothing(t *testing.T) {
	leased := newBucket("openx", settings{1e6, 1e5}, 1)
	leased.grant(time.Second, 1e5, 1e6)
	empty := newBucket("openx", settings{1e6, 1e5}, 1)
	empty.grant(time.Second, 0, 1e6)
	alone := newBucket("openx", settings{1e9, 1e5}, 1)
	for name, b := range map[string]*Bucket{"leased": leased, "refused": empty, "alone": alone} {
		n := testing.AllocsPerRun(1000, func() { b.Has(time.Second); b.Take(time.Second) })
		testsupport.True(t, n == 0, "%s: %v allocations", name, n)
	}
}
