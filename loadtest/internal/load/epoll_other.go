//go:build !linux

package load

import (
	"errors"
	"time"
)

// poller is what Linux has; here New refuses.
type poller struct{}

// New returns an error.
func newPoller(int) (*poller, error) { return nil, errors.New("load can be made on Linux only") }

// Close does nothing.
func (p *poller) Close() error { return nil }

// Add returns an error.
func (p *poller) Add(int, int32) error { return errors.ErrUnsupported }

// AddListener returns an error.
func (p *poller) AddListener(int, int32) error { return errors.ErrUnsupported }

// Wait returns an error.
func (p *poller) Wait(time.Duration) ([]event, error) { return nil, errors.ErrUnsupported }

// Socket returns an error.
func openSocket(int) (int, error) { return -1, errors.ErrUnsupported }

// Accept returns an error.
func acceptSocket(int) (int, error) { return -1, errors.ErrUnsupported }

// Pair returns an error.
func socketPair() ([2]int, error) { return [2]int{-1, -1}, errors.ErrUnsupported }
