package app

import (
	"context"
	"sync"
	"time"

	"adbuffer/internal/pool"
)

// prewarmLimit bounds how long a reload waits for the connections of pools that
// replace others.
const prewarmLimit = 2 * time.Second

// prewarm makes the pools that replace others, and opens as many connections as
// those have: else all requests of a busy SSP would wait for dials at once. An
// SSP that cannot be reached holds up the reload for prewarmLimit, and the drain
// not at all. Until the old pool's idle connections go (aboutToAsk), the SSP may
// have twice max_conns, where both pools lead to the same one.
func (p *plan) prewarm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, prewarmLimit)
	defer cancel()
	var wg sync.WaitGroup
	for i := range p.ssps {
		s := &p.ssps[i]
		if s.was == nil || s.was.dialer == s.dialer {
			continue
		}
		o := poolOptions(s.cfg, s.endpoints.Scheme)
		// Within max_idle, or they would be closed again as soon as they are open.
		o.MinIdle = max(o.MinIdle, min(openConnections(s.was.ssp.Pool()), o.MaxIdle))
		s.pool = pool.New(o, s.dialer)
		wg.Go(func() { s.pool.Warm(ctx) }) //nolint:errcheck // warm or not, it is used
	}
	wg.Wait()
}

func openConnections(p *pool.Pool) (n int) {
	s := p.Snapshot()
	for i := range s.Idle {
		n += s.Idle[i] + s.Active[i]
	}
	return n
}
