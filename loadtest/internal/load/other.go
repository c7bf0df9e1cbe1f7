//go:build !linux

package load

import "time"

// The generator is for Linux. On other systems it compiles, but measures neither CPU time nor cores.

func preciseTimers() (unlock func()) { return func() {} }
func sleep(d time.Duration)          { time.Sleep(d) }
func processCPU() time.Duration      { return 0 }
func allowedCores() []int            { return nil }
