package reload

import (
	"context"
	"sync"
	"time"

	"adbuffer/internal/ssp/pool"
)

// prewarmLimit bounds how long a reload waits for the connections of pools that replace
// old ones.
const prewarmLimit = 2 * time.Second

// prewarm makes the pools that replace old ones, and opens as many connections as the old pools
// have. Otherwise all requests of a busy SSP would wait for dials at once. An SSP that cannot be
// reached delays a reload by prewarmLimit, and does not delay a drain. Until the old pool closes
// its idle connections (after aboutToAsk), the SSP may have twice max_conns if both pools lead to
// it.
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
		// This stays within max_idle: the pool would close further connections at once.
		o.MinIdle = max(o.MinIdle, min(openConnections(s.was.SSP.Pool()), o.MaxIdle))
		o.HealthCheck.Paused = true // the old pool still checks
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
