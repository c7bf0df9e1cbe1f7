package app

import (
	"context"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/ssp/sizer"
)

// sizePools makes each pool take a sample of its load at regular intervals, and logs the pools' decisions
// about their size. If no pool sizes itself, the interval is a second, since each wake-up costs CPU while the
// process is idle.
func (a *App) sizePools(ctx context.Context) {
	log := a.peers.Logger()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			next := time.Second
			for _, s := range a.versions.Current().SSPs {
				if s.Pool().Options().Auto.Enabled {
					next = sizer.Interval
				}
				d, ok := s.Pool().Tick(now, s.HoldsBack(now))
				if !ok {
					continue
				}
				log.Info("pool sized itself", zap.String("ssp", s.Name()), zap.Stringer("decision", d.Kind), zap.Bool("dry_run", s.Pool().Options().Auto.DryRun),
					zap.Int("from", d.From), zap.Int("to", d.To), zap.Int("need", d.Need), zap.Float64("waiting", d.Waiting),
					zap.Float64("used", d.Used), zap.Float64("goodput", d.Goodput), zap.Duration("hold", d.Hold))
			}
			timer.Reset(next)
		}
	}
}
