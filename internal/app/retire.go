package app

import (
	"context"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/tracing"
)

// retirement ends what a reload has taken out of use.
//
// A request that began before may not have asked its SSP yet: it reads its body,
// or a waterfall has not come to it. So a pool goes on lending until nobody can
// ask for a place any more, and is closed then, which no request notices.
//
//	swapped ──aboutToAsk──▶ idle connections go ──nobody is left──▶ closed
//	                                            ──server.drain.timeout──▶ cut
type retirement struct {
	parts  []*part
	tracer *tracing.Tracer // nil where it goes on
	// longest is how long a request that has begun can take until it asks an SSP
	// for the last time: until the first byte of its body, from there to the body's
	// end, and then its deadline.
	longest time.Duration
}

const (
	// aboutToAsk is how long idle connections stay, for requests that have just
	// chosen their route, and more than any takes until it counts as in flight.
	aboutToAsk = time.Second
	quietPoll  = 10 * time.Millisecond
)

// retire ends, in the background, what is in was and not in next.
func (a *App) retire(was, next *generation) {
	// A wait for a body that begins only now is as long as the timeout is now.
	r := &retirement{
		parts:   was.without(next),
		longest: 2*max(was.cfg.Server.ReadTimeout, next.cfg.Server.ReadTimeout) + was.cfg.Deadline.Max,
	}
	if was.tracer != next.tracer {
		r.tracer = was.tracer
	}
	if len(r.parts) == 0 && r.tracer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(a.alive, next.cfg.Server.Drain.Timeout)
	a.retiring.Add(int64(len(r.parts)))
	a.background.Go(func() {
		defer cancel()
		a.drainRetired(ctx, r)
		a.retiring.Add(-int64(len(r.parts)))
	})
}

func (a *App) drainRetired(ctx context.Context, r *retirement) {
	swapped := time.Now()
	sleep(ctx, aboutToAsk)
	for _, p := range r.parts {
		o := p.ssp.Pool().Options()
		o.MinIdle, o.MaxIdle = 0, 0
		p.ssp.Pool().SetOptions(o)
	}
	// Nothing in progress at one moment: all requests that began before have ended.
	for a.proxy.InProgress() > 0 && time.Since(swapped) < r.longest && ctx.Err() == nil {
		sleep(ctx, quietPoll)
	}
	cut := a.closeParts(ctx, r.parts)
	for _, p := range r.parts {
		a.log.Info("pool drained after a reload", zap.String("ssp", p.cfg.Name))
	}
	if cut > 0 && a.alive.Err() == nil {
		a.log.Error("requests were cut at the end of a pool's drain; see server.drain.timeout", zap.Int("cut", cut))
	}
	a.closeTracer(r.tracer)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
