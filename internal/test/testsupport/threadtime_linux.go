package testsupport

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// ThreadTime returns the CPU time that f takes on its thread. Other work of the machine does not
// lengthen it.
func ThreadTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	f()
	return threadTime() - began
}

func threadTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		panic(fmt.Sprintf("BUG: a thread has no clock: %v", err))
	}
	return time.Duration(now.Nano())
}
