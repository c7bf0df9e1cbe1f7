package app

import (
	"context"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// returnIdleMemory returns memory to the system each time the process becomes idle after work.
//
// Go collects garbage when the heap has doubled. A process that becomes idle allocates nothing, so it would
// keep its garbage for minutes: the buffers of the last requests and handshakes, and the stacks of the
// goroutines of clients that are now parked. With ten thousand idle clients, the process would take twice
// the memory that it needs.
func (a *App) returnIdleMemory(ctx context.Context) {
	var i idleness
	tick := time.NewTicker(idleWindow)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if before := cpuTime(); i.observe(time.Now(), before) {
			runtime.GC() // a sync.Pool keeps what it holds through one collection
			debug.FreeOSMemory()
			after := cpuTime()
			i.returned(time.Now(), after, after-before)
			a.log.Debug("returned memory to the system, since the process is idle", zap.Duration("cpu", after-before))
		}
	}
}

const (
	idleWindow = time.Second
	// The process is idle in a window if it uses less than idleCPU of CPU time.
	idleCPU = idleWindow / 20
	// Memory is returned after so many idle windows: by then, the goroutines that served clients have
	// ended; see fasthttp's MaxIdleWorkerDuration.
	idleWindows = 2
	// Memory is not returned again until the process has used minWork of CPU time.
	minWork = 300 * time.Millisecond
	// Returning memory takes at most one part in returnDivisor of a core.
	returnDivisor = 50
)

// idleness decides when memory is returned.
type idleness struct {
	used time.Duration // CPU time of the process at the last observation
	idle int           // number of idle windows in a row
	last time.Duration // CPU time of the process at the last return of memory
	next time.Time     // when memory may be returned again
}

// observe is called once in each window with the CPU time that the process has used so far. It reports
// whether to return memory now.
func (i *idleness) observe(now time.Time, used time.Duration) bool {
	i.idle++
	if used-i.used >= idleCPU {
		i.idle = 0
	}
	i.used = used
	return i.idle >= idleWindows && used-i.last >= minWork && !now.Before(i.next)
}

// returned records that memory has been returned. cost is the CPU time that it took.
func (i *idleness) returned(now time.Time, used, cost time.Duration) {
	i.used, i.last, i.next = used, used, now.Add(returnDivisor*cost)
}

// cpuTime returns the CPU time that the process has used, including time in the kernel.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
