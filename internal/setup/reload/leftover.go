package reload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	// idleGrace is how long idle connections stay open after the swap. It is longer than any
	// request takes from the choice of its route until it counts as in flight.
	idleGrace = time.Second
	drainPoll = 10 * time.Millisecond
)

// drainLeftover closes, in the background, the parts of was that next does not have.
//
// A request that began before the swap may still need a place of an old pool: its body is still
// arriving, or a waterfall has not reached the pool's SSP yet. So an old pool stays open until no such
// request is left, and no request fails because of the reload.
//
//	swap ──idleGrace──▶ idle connections close ──no older request──▶ closed
//	                                           ──server.drain.timeout──▶ cut
func (v *Versions) drainLeftover(was, next *Version) {
	parts, tracer := was.without(next), was.Tracer
	if tracer == next.Tracer {
		tracer = nil
	}
	if len(parts) == 0 && tracer == nil {
		return
	}
	// A request that has begun asks its last SSP within this time: the wait for its body, the body itself,
	// and its deadline. A wait for a body that begins after the swap has the new timeout.
	longest := 2*max(was.Config.Server.ReadTimeout, next.Config.Server.ReadTimeout) + was.Config.Deadline.Max
	pauseChecks(parts)
	ctx, cancel := context.WithTimeout(v.alive, next.Config.Server.Drain.Timeout)
	v.leftovers.Add(int64(len(parts)))
	v.background.Go(func() {
		defer cancel()
		v.drain(ctx, parts, longest)
		closeTracer(tracer, v.opts.Log)
		v.leftovers.Add(-int64(len(parts)))
	})
}

func (v *Versions) drain(ctx context.Context, parts []*Part, longest time.Duration) {
	swapped := time.Now()
	sleep(ctx, idleGrace)
	for _, p := range parts {
		o := p.SSP.Pool().Options()
		o.MinIdle, o.MaxIdle = 0, 0
		p.SSP.Pool().SetOptions(o)
	}
	// At a moment with no request in progress, all requests from before the swap have ended.
	for v.opts.InProgress() > 0 && time.Since(swapped) < longest && ctx.Err() == nil {
		sleep(ctx, drainPoll)
	}
	cut := closeParts(ctx, parts)
	for _, p := range parts {
		v.opts.Log.Info("pool drained after a reload", zap.String("ssp", p.Config.Name))
	}
	if cut > 0 && v.alive.Err() == nil {
		v.opts.Log.Error("requests were cut at the end of a pool's drain; see server.drain.timeout", zap.Int("cut", cut))
	}
}

// closeParts closes the pools in parallel, and then their dialers. It returns how many places were in use
// when they were cut.
func closeParts(ctx context.Context, parts []*Part) (cut int) {
	var wg sync.WaitGroup
	var sum atomic.Int64
	for _, p := range parts {
		wg.Go(func() { sum.Add(int64(p.SSP.Pool().Close(ctx))) })
	}
	wg.Wait()
	for _, p := range parts {
		p.dialer.dial.Close()
	}
	return int(sum.Load())
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
