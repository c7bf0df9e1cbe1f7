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
// Go collects garbage when the heap has doubled. A process that becomes idle allocates nothing, so
// it would keep its garbage for minutes: the buffers of the last requests and handshakes, and the
// stacks of the goroutines that served clients which are parked now. Ten thousand idle clients
// would take twice the memory that they hold.
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
	// In a window the process is idle if it uses less CPU time than this.
	idleCPU = idleWindow / 20
	// The goroutines that served clients end within two windows; see fasthttp's
	// MaxIdleWorkerDuration.
	idleWindows = 2
	// Between two returns the process uses this much CPU time.
	leastWork = 300 * time.Millisecond
	// Returns take at most one part in returnShare of a core.
	returnShare = 50
)

// idleness decides when memory is returned.
type idleness struct {
	used time.Duration // CPU time of the process at the last observation
	idle int           // windows since the last one in which the process was not idle
	last time.Duration // CPU time of the process at the last return of memory
	next time.Time     // when memory may be returned again
}

// observe is called once a window with the CPU time that the process has used. It reports whether
// memory is to be returned now.
func (i *idleness) observe(now time.Time, used time.Duration) bool {
	i.idle++
	if used-i.used >= idleCPU {
		i.idle = 0
	}
	i.used = used
	return i.idle >= idleWindows && used-i.last >= leastWork && !now.Before(i.next)
}

// returned notes that memory has been returned, and its cost.
func (i *idleness) returned(now time.Time, used, cost time.Duration) {
	i.used, i.last, i.next = used, used, now.Add(returnShare*cost)
}

// cpuTime returns the CPU time that the process has used, in the kernel too.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
