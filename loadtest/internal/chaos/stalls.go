package chaos

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// The machine may make requests wait. watchStalls measures how late a ticking clock is, and how long
// threads of this process and of adbuffer wait for a core. A stall excuses a request only if the stall was
// measured while the request was in flight, and it excuses at most the time that was measured. Excuses are
// counted, printed and bounded.

// stallTick is the pause between two measurements.
const stallTick = 50 * time.Millisecond

// stalls measures for how long the machine has held up requests to one instance.
type stalls struct {
	sum    atomic.Int64 // nanoseconds
	tick   atomic.Int64 // the last measurement, in nanoseconds since 1970
	recent []int64      // the sums of the last 3 s; used by watchStalls
	lately atomic.Int64 // nanoseconds in the last 3 s

	pid    int // the process of waited; used by watchStalls
	waited load.Waits
}

// look adds the stalls since the last measurement. frozen is how late the measuring goroutine woke. own is
// how long a thread of this process waited for a core.
func (s *stalls) look(now time.Time, pid int, frozen, own time.Duration) {
	waited := load.ReadWaits(pid)
	theirs := time.Duration(0)
	if s.pid == pid {
		theirs = waited.Longest(s.waited)
	}
	s.pid, s.waited = pid, waited
	elapsed := time.Duration(now.UnixNano() - s.tick.Swap(now.UnixNano()))
	sum := s.sum.Add(int64(taken(elapsed, frozen, own, theirs)))
	s.recent = append(s.recent, sum)
	s.recent = s.recent[max(0, len(s.recent)-recentTicks-1):]
	s.lately.Store(sum - s.recent[0])
}

// taken returns for how much of the elapsed time the machine stalled: the sum of the waits, at most the elapsed
// time.
func taken(elapsed, frozen, own, theirs time.Duration) time.Duration {
	return max(0, min(elapsed, frozen+own+theirs))
}

// total returns the sum of all stalls so far. It includes a freeze that has not ended yet.
func (s *stalls) total() time.Duration {
	return time.Duration(s.sum.Load() + max(0, time.Now().UnixNano()-s.tick.Load()-int64(2*stallTick)))
}

func (r *run) watchStalls(ctx context.Context) {
	own, last := load.ReadWaits(os.Getpid()), time.Now()
	for ctx.Err() == nil {
		rig.Sleep(ctx, stallTick)
		before, was := own, last
		own, last = load.ReadWaits(os.Getpid()), time.Now()
		frozen := max(0, last.Sub(was)-2*stallTick)
		for _, st := range r.instances {
			st.stalls.look(last, st.process.Load().PID, frozen, own.Longest(before))
		}
	}
}

// recentTicks is how many measurements 3 s have.
const recentTicks = int(3 * time.Second / stallTick)

// maxExcusedShare is the largest share of requests that may be excused. Above it the promise is broken.
const maxExcusedShare = 0.01

func (r *run) excuse(p promise, a *request, stalled time.Duration) {
	if r.excused.add(string(p), "") <= maxExamples {
		r.say("excused, since the machine stood still for %v: %s: %v", stalled.Round(time.Millisecond), p, a)
	}
}

// checkExcuses breaks the promises for which too many requests were excused.
func (r *run) checkExcuses(requests uint64) {
	_, counts, _ := r.excused.all()
	for name, n := range counts {
		if float64(n) > maxExcusedShare*float64(requests) {
			r.broken.add(promise(name), "%d of %d requests had to be excused, since the machine stood still: it is too busy to judge", n, requests)
		}
	}
}

// newConnectionEnded judges a new connection that ended without a response. A draining process waits
// one second for the first request on a connection. The connection is excused if the machine has
// stalled this instance for half of that second within the last 3 s, or if the process had no descriptors left,
// since it then closes idle connections.
func (r *run) newConnectionEnded(st *instance, a *request, format string, args ...any) {
	lately := time.Duration(st.stalls.lately.Load())
	if lately > time.Second/2 || st.starved() {
		r.excuse(unread, a, lately)
		return
	}
	r.broken.add(unread, st.name+": "+format, args...)
}
