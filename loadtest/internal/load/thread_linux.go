package load

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// preciseTimers locks the goroutine to its thread and sets the timer slack of the thread to 1 ns.
// The caller calls unlock at the end.
func preciseTimers() (unlock func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // an error leaves the default of 50 µs
	return func() {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // 0 restores the default
		runtime.UnlockOSThread()
	}
}

// sleep blocks the thread for d. It is more exact than the timers of the Go runtime. A signal ends
// it early.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}

func processCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allowedCores() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var out []int
	for i := range 1024 {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out
}
