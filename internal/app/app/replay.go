package app

import (
	"errors"
	"time"

	"adbuffer/internal/operate/replay"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/wire/exchange"
)

var errReplaying = errors.New("another dry run with the traffic is in progress")

// replay says what cfg would do to the sampled traffic.
func (a *App) replay(cfg *config.Config) *replay.Report {
	if !a.replaying.TryLock() {
		return replay.Failed(errReplaying)
	}
	defer a.replaying.Unlock()
	strata, at := a.proxy.Sample().Strata(time.Now()), time.Now()
	protocols := make(map[string]exchange.Protocol)
	var current *config.Config
	a.versions.Look(func(v *reload.Version) {
		current = v.Config
		for _, p := range v.Parts {
			s := p.SSP.Pool().Snapshot()
			protocols[p.Config.Name] = s.Protocol
		}
	})
	var sides [2]replay.Side
	for i, c := range []*config.Config{current, cfg} {
		e, err := NewExplainer(c)
		if err != nil {
			return replay.Failed(err)
		}
		defer e.Close()
		sides[i] = replay.Side{Proxy: e.app.proxy, Version: e.app.versions.Current()}
	}
	report, err := replay.Run(&replay.Input{
		Now: sides[0], Then: sides[1], Strata: strata, At: at, CPU: a.share,
		Protocol: func(ssp string) exchange.Protocol { return protocols[ssp] },
	})
	if err != nil {
		return replay.Failed(err)
	}
	return report
}
