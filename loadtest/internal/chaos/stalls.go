package chaos

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"adbuffer/loadtest/internal/load"
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
	now := load.Waited(pid)
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

// watchStalls looks at the machine, at this process and at those of the instances.
func (r *run) watchStalls(ctx context.Context) {
	for ctx.Err() == nil {
		r.sleep(ctx, stallTick)
		r.freezes.tick()
		r.stalls.look(os.Getpid())
		sum := r.freezes.sum.Load() + r.stalls.sum.Load()
		for _, st := range r.instances {
			st.stalls.look(st.process().PID)
			sum += st.stalls.sum.Load()
		}
		r.lately.Store(r.lookback.add(sum))
	}
}

// lookback remembers a sum for recentTicks looks.
type lookback struct {
	sums [recentTicks]int64
	at   int
}

// recentTicks are 3 s.
const recentTicks = int(3 * time.Second / stallTick)

// add takes in the sum of now, and returns by how much it has risen.
func (r *lookback) add(sum int64) int64 {
	before := r.sums[r.at]
	r.sums[r.at] = sum
	r.at = (r.at + 1) % recentTicks
	return sum - before
}

// newConnectionEnded judges a new connection that ended without a response. A process that
// drains waits for a request on it for a second. If the machine has taken half of
// that lately, the connection is only counted.
func (r *run) newConnectionEnded(format string, args ...any) {
	if r.lately.Load() > int64(time.Second/2) {
		r.tally.add(0, "closed, new: the machine stood still")
		return
	}
	r.broken.add(unread, format, args...)
}

// stalled is the time that the machine has taken from requests to an instance so far.
func (r *run) stalled(st *instance) time.Duration {
	return time.Duration(r.freezes.total() + r.stalls.sum.Load() + st.stalls.sum.Load())
}
