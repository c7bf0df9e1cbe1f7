//go:build !linux

package load

import (
	"errors"
	"time"
)

// The generator needs Linux. On other systems it compiles, and newPoller returns an error.

type poller struct{}

func newPoller(int) (*poller, error)                  { return nil, errors.New("load can be made on Linux only") }
func (p *poller) Close() error                        { return nil }
func (p *poller) Add(int, int32) error                { return errors.ErrUnsupported }
func (p *poller) Wait(time.Duration) ([]event, error) { return nil, errors.ErrUnsupported }

func openSocket(int) (int, error) { return -1, errors.ErrUnsupported }

func preciseTimers() (unlock func()) { return func() {} }
func sleep(d time.Duration)          { time.Sleep(d) }
func threadCPU() time.Duration       { return 0 }
func processCPU() time.Duration      { return 0 }
func allowedCores() []int            { return nil }
