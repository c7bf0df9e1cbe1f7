package reload

import (
	"context"
	"sync"
	"time"

	"adbuffer/internal/ssp/pool"
)

// prewarmLimit bounds how long a reload waits for the connections of new pools that replace old pools.
const prewarmLimit = 2 * time.Second

// prewarm makes the pools that replace old pools, and opens as many connections in each as the old pool
// has. Otherwise all requests to a busy SSP would have to wait for dials after the swap. An SSP that
// cannot be reached delays a reload by prewarmLimit, but does not delay a drain. Until the old pool closes
// its idle connections (after idleGrace), an SSP that both pools lead to may have twice max_conns
// connections.
func (p *prepared) prewarm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, prewarmLimit)
	defer cancel()
	var wg sync.WaitGroup
	for i := range p.ssps {
		s := &p.ssps[i]
		if !s.replaces() {
			continue
		}
		o := s.poolOptions(p.common)
		// The pool would at once close connections beyond max_idle.
		o.MinIdle = max(o.MinIdle, min(openConnections(s.was.SSP.Pool()), o.MaxIdle))
		o.HealthCheck.Paused = true // until the swap, only the old pool checks the endpoints
		s.pool = pool.New(o, s.dialer)
		s.pool.Inherit(s.was.SSP.Pool())
		wg.Go(func() { s.pool.Warm(ctx) }) //nolint:errcheck // the pool is used even if it is cold
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
