package chaos

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"adbuffer/loadtest/internal/load"
)

// The machine may keep requests waiting: its clock is watched, and the threads of this process
// and of adbuffer. What it took from a request is measured in the request's own window and is
// never more than that window. Each verdict that rests on it is counted, printed and bounded.

// stallTick is how often processes are looked at.
const stallTick = 50 * time.Millisecond

// stalls is the time that the machine has taken from the requests to one instance.
type stalls struct {
	sum    atomic.Int64 // nanoseconds
	tick   atomic.Int64 // the last one, in nanoseconds since 1970
	recent lookback     // by watchStalls
	lately atomic.Int64 // nanoseconds in the last 3 s

	pid    int // that waited is of; by watchStalls
	waited load.Waits
}

// look adds what the machine has taken since the last look. frozen is by how much the watching
// goroutine woke late, own for how long a thread of this process waited for a core.
func (s *stalls) look(now time.Time, pid int, frozen, own time.Duration) {
	waited := load.ReadWaits(pid)
	theirs := time.Duration(0)
	if s.pid == pid {
		theirs = waited.Longest(s.waited)
	}
	s.pid, s.waited = pid, waited
	elapsed := time.Duration(now.UnixNano() - s.tick.Swap(now.UnixNano()))
	s.sum.Add(int64(taken(elapsed, frozen, own, theirs)))
	s.lately.Store(s.recent.add(s.sum.Load()))
}

// taken is what the machine took from a stretch of time: no more than the stretch.
func taken(elapsed, frozen, own, theirs time.Duration) time.Duration {
	return max(0, min(elapsed, frozen+own+theirs))
}

// total counts a freeze whose end no tick has seen, too.
func (s *stalls) total() time.Duration {
	return time.Duration(s.sum.Load() + max(0, time.Now().UnixNano()-s.tick.Load()-int64(2*stallTick)))
}

// watchStalls looks at the machine, at this process and at those of the instances.
func (r *run) watchStalls(ctx context.Context) {
	own, last := load.ReadWaits(os.Getpid()), time.Now()
	for ctx.Err() == nil {
		r.sleep(ctx, stallTick)
		before, was := own, last
		own, last = load.ReadWaits(os.Getpid()), time.Now()
		frozen := max(0, last.Sub(was)-2*stallTick)
		r.frozen += frozen
		for _, st := range r.instances {
			st.stalls.look(last, st.process().PID, frozen, own.Longest(before))
		}
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

// excuses count, by promise, what was excused because the machine stood still.
type excuses [promises]atomic.Int64

// most share of the requests may be excused: beyond it the promise is broken.
const mostExcused = 0.01

// excuse counts what a stall of the machine excuses.
func (r *run) excuse(p promise, a *request, stalled time.Duration) {
	if n := r.excused[p].Add(1); n <= mostExamples {
		r.say("excused, since the machine stood still for %v: %s: %v", stalled.Round(time.Millisecond), promiseText[p], a)
	}
}

// checkExcuses breaks the promises that rest on too many excuses.
func (r *run) checkExcuses(requests uint64) {
	for p := range r.excused {
		if n := r.excused[p].Load(); float64(n) > mostExcused*float64(requests) {
			r.broken.add(promise(p), "%d of %d requests had to be excused, since the machine stood still: it is too busy to judge", n, requests)
		}
	}
}

// newConnectionEnded judges a new connection that ended without a response. A process that
// drains waits for a request on it for a second. Where the machine has taken half of that from
// this instance lately, the connection is excused.
func (r *run) newConnectionEnded(st *instance, a *request, format string, args ...any) {
	lately := time.Duration(0)
	if st != nil {
		lately = time.Duration(st.stalls.lately.Load())
		format = st.name + ": " + format
	}
	if lately > time.Second/2 {
		r.excuse(unread, a, lately)
		return
	}
	r.broken.add(unread, format, args...)
}

// stalled is the time that the machine has taken from requests to an instance so far.
func (r *run) stalled(st *instance) time.Duration { return st.stalls.total() }
