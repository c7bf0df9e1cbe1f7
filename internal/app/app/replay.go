package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"adbuffer/internal/operate/replay"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/wire/exchange"
)

var errReplaying = errors.New("another dry run with the traffic is in progress")

// replay says what cfg would do to the sampled traffic.
func (a *App) replay(ctx context.Context, cfg *config.Config) *replay.Report {
	if !a.replaying.TryLock() {
		return replay.Failed(errReplaying)
	}
	defer a.replaying.Unlock()
	strata, at := a.proxy.Sample().Strata(time.Now()), time.Now()
	protocols := make(map[string]exchange.Protocol)
	var current *config.Config
	var since time.Time
	a.versions.Look(func(v *reload.Version) {
		current, since = v.Config, v.Loaded
		for _, p := range v.Parts {
			s := p.SSP.Pool().Snapshot()
			protocols[p.Config.Name] = s.Protocol
		}
	})
	var sides [2]replay.Side
	for i, c := range []*config.Config{current, cfg} {
		e, err := newExplainer(unshaped(c), a.via)
		if err != nil {
			return replay.Failed(err)
		}
		defer e.Close()
		sides[i] = e.side(c)
	}
	report, err := replay.Run(ctx, &replay.Input{
		Now: sides[0], Then: sides[1], Strata: strata, At: at, Since: since, CPU: a.share,
		Protocol: func(ssp string) exchange.Protocol { return protocols[ssp] },
	})
	if err != nil {
		return replay.Failed(err)
	}
	return report
}

// side returns the side of a replay for cfg, the configuration of which e was made.
func (e *Explainer) side(cfg *config.Config) replay.Side {
	return replay.Side{Proxy: e.app.proxy, Version: e.app.versions.Current(), Config: cfg}
}

// unshaped returns cfg without qps.shape, whose tables take much memory and know nothing before there is traffic.
func unshaped(cfg *config.Config) *config.Config {
	c := *cfg
	c.SSPs = slices.Clone(cfg.SSPs)
	for i := range c.SSPs {
		c.SSPs[i].QPS.Shape.Keys = nil
	}
	return &c
}
