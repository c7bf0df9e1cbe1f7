//go:build !linux

package load

import "time"

// The load generator runs on Linux. On other systems it compiles, but it cannot measure CPU time, nor choose cores.

func preciseTimers() (unlock func()) { return func() {} }
func sleep(d time.Duration)          { time.Sleep(d) }
func processCPU() time.Duration      { return 0 }
func allowedCores() []int            { return nil }
