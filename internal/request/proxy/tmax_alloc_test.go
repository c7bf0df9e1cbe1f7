//go:build !race

package proxy

import (
	"testing"
	"time"
)

func TestTmaxAllocatesNothing(t *testing.T) {
	body := bidRequest(4 << 10)
	if n := testing.AllocsPerRun(100, func() {
		if d, _, _, _ := scanTmax(body); d != 120*time.Millisecond {
			t.Fatal(d)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
