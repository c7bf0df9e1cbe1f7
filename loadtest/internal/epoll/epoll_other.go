//go:build !linux

package epoll

import (
	"errors"
	"time"
)

// Poller is what Linux has; here New refuses.
type Poller struct{}

// New returns an error.
func New(int) (*Poller, error) { return nil, errors.New("load can be made on Linux only") }

// Close does nothing.
func (p *Poller) Close() error { return nil }

// Add returns an error.
func (p *Poller) Add(int, int32) error { return errors.ErrUnsupported }

// AddListener returns an error.
func (p *Poller) AddListener(int, int32) error { return errors.ErrUnsupported }

// Wait returns an error.
func (p *Poller) Wait(time.Duration) ([]Event, error) { return nil, errors.ErrUnsupported }

// Socket returns an error.
func Socket(int) (int, error) { return -1, errors.ErrUnsupported }

// Accept returns an error.
func Accept(int) (int, error) { return -1, errors.ErrUnsupported }

// Pair returns an error.
func Pair() ([2]int, error) { return [2]int{-1, -1}, errors.ErrUnsupported }
