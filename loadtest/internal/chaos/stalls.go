package chaos

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"adbuffer/loadtest/internal/procstat"
)

// stalls is for how long the machine has kept a process waiting: its threads were
// ready to run, and other processes had the cores. No request is late by that.
type stalls struct {
	sum  atomic.Int64 // nanoseconds
	last time.Duration
	pid  int // that last is of
}

// stallTick is how often processes are looked at.
const stallTick = 50 * time.Millisecond

func (s *stalls) look(pid int) {
	now := procstat.Waited(pid)
	if s.pid == pid {
		// Threads that end take their part away.
		s.sum.Add(int64(max(0, now-s.last)))
	}
	s.pid, s.last = pid, now
}

// freezes is for how long the whole machine has stood still, as virtual machines
// do: a goroutine that sleeps for a tick woke later.
type freezes struct {
	sum  atomic.Int64 // nanoseconds
	last atomic.Int64 // the last tick, in nanoseconds since 1970
}

func (f *freezes) tick() {
	now := time.Now().UnixNano()
	f.sum.Add(max(0, now-f.last.Swap(now)-int64(2*stallTick)))
}

// total counts a freeze whose end no tick has seen, too.
func (f *freezes) total() int64 {
	return f.sum.Load() + max(0, time.Now().UnixNano()-f.last.Load()-int64(2*stallTick))
}

// watchStalls looks at the machine, at this process and at those of the stations.
func (r *run) watchStalls(ctx context.Context) {
	for ctx.Err() == nil {
		r.sleep(ctx, stallTick)
		r.freezes.tick()
		r.stalls.look(os.Getpid())
		for _, st := range r.stations {
			st.stalls.look(st.process().PID)
		}
	}
}

// stalled is the time that the machine has taken from requests to a station so far.
func (r *run) stalled(st *station) time.Duration {
	return time.Duration(r.freezes.total() + r.stalls.sum.Load() + st.stalls.sum.Load())
}
