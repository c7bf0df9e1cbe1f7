package testsupport

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Bubble runs test in a synctest bubble. Channels and timers must not leave the bubble that made
// them, but a sync.Pool could keep them. So two runs of the garbage collector empty all pools
// before and after.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	empty := func() {
		runtime.GC()
		runtime.GC()
	}
	empty()
	defer empty()
	synctest.Test(t, test)
}

// RunBubble is Bubble for a subtest.
func RunBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Bubble(t, test) })
}
