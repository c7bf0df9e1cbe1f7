//go:build !linux

package load

import "time"

func preciseTimers() (unlock func()) { return func() {} }

func sleep(d time.Duration) { time.Sleep(d) }

func threadCPU() time.Duration { return 0 }

func processCPU() time.Duration { return 0 }

func allowedCores() []int { return nil }
