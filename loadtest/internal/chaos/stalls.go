package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"adbuffer/loadtest/internal/rig"
)

// stalls measures for how long the machine keeps processes from running. It asks
// a process that does nothing else, again and again; what a response takes beyond
// leastStall is the machine's own, and no request is late by it.
type stalls struct {
	mu    sync.Mutex
	sum   time.Duration
	since time.Time // when the request in flight was sent; zero if there is none
}

const (
	stallTick  = 5 * time.Millisecond
	leastStall = 10 * time.Millisecond
)

// watch asks the process until the context ends.
func (s *stalls) watch(ctx context.Context, idle *rig.Constant) error {
	c, err := net.Dial("tcp", idle.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for last := time.Now(); ctx.Err() == nil; {
		s.mu.Lock()
		s.since = last
		s.mu.Unlock()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: idle\r\n\r\n"); err != nil {
			return fmt.Errorf("the idle process: %w", err)
		}
		res, err := http.ReadResponse(in, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		if err != nil {
			return fmt.Errorf("the idle process: %w", err)
		}
		time.Sleep(stallTick)
		now := time.Now()
		s.mu.Lock()
		s.sum += max(0, now.Sub(last)-leastStall)
		s.since = time.Time{}
		s.mu.Unlock()
		last = now
	}
	return nil
}

// total is the time that was lost so far.
func (s *stalls) total() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return s.sum
	}
	return s.sum + max(0, time.Since(s.since)-leastStall)
}
