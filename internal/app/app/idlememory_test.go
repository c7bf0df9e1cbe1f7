package app

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// Each step is a window, in which the process uses cpu.
func TestMemoryIsReturnedWhenTheProcessIsIdleAfterWork(t *testing.T) {
	const little = idleCPU - 1
	const cost = 4 * idleWindow / returnDivisor // memory may be returned in each fourth window
	var i idleness
	now, used := time.Now(), time.Duration(0)
	for n, step := range []struct {
		cpu  time.Duration
		want bool
		why  string
	}{
		{minWork - 2*little - 1, false, "it works"},
		{little, false, "it has been idle for one window only"},
		{little, false, "it has worked too little"},
		{1, true, "it is idle, and has worked enough"},
		{little, false, "it has worked too little since memory was returned"},
		{idleCPU, false, "it works"},
		{minWork, false, "it works"},
		{0, false, "it has been idle for one window only"},
		{idleCPU, false, "it works again"},
		{0, false, "it has been idle for one window only"},
		{0, true, "it is idle after work"},
		{minWork, false, "it works"},
		{0, false, "it has been idle for one window only"},
		{0, false, "the last return was three windows ago"},
		{0, true, "the last return was four windows ago"},
	} {
		now, used = now.Add(idleWindow), used+step.cpu
		got := i.observe(now, used)
		testsupport.MustTrue(t, got == step.want, "window %d: returned: %v, want %v, since %s", n, got, step.want, step.why)
		if got {
			used += cost
			i.returned(now, used, cost)
		}
	}
}
