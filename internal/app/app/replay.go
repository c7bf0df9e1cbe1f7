package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/operate/replay"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/wire/exchange"
)

const (
	maxTried = 64 << 10         // bytes that are kept of the report of a trial, which lists all routes and SSPs
	maxTrial = 30 * time.Second // how long a trial of a reload may last, since other reloads wait for it
)

// maxChange returns the limit that admin.sample.max_change sets.
func (a *App) maxChange() replay.Limit {
	limit := replay.Limit{Share: a.versions.Current().Config.Admin.Sample.MaxChange, Setting: "admin.sample.max_change"}
	if limit.Share == 0 {
		limit.Share = math.Inf(1)
	}
	return limit
}

// try says what cfg, which a reload is about to apply, would do to the sampled traffic, if t or admin.sample.max_change
// asks for it; rep is nil if cfg is not tried. err has the reasons to refuse cfg.
func (a *App) try(ctx context.Context, cfg *config.Config, t *reload.Trial) (rep *replay.Report, err error) {
	limit := a.maxChange()
	guarded := !math.IsInf(limit.Share, 1)
	if t.MaxChange != nil {
		limit = replay.Limit{Share: *t.MaxChange, Setting: "--max-change"}
	}
	if !t.Traffic && (!guarded || a.mayComeBack(cfg)) {
		return nil, nil
	}
	if d, err := a.versions.DryRun(cfg); err != nil || d.Verdict != reload.Applies {
		return nil, nil // Replace says why, or finds nothing to apply
	}
	serving := a.versions.Serving()
	trial, cancel := context.WithTimeoutCause(serving, maxTrial, fmt.Errorf("it lasts longer than %v; see admin.sample.requests", maxTrial))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	rep = a.replay(trial, cfg, limit)
	if serving.Err() != nil {
		return nil, nil // Replace applies nothing during the drain
	}
	t.Result = rep
	if err := rep.Refusal(limit); err != nil {
		return rep, err
	}
	switch why := rep.Untried(limit); {
	case why == "":
	case t.MaxChange == nil && guarded:
		a.log.Warn("the configuration is applied though it could not be tried on the traffic; see admin.sample.max_change", zap.String("why", why))
	case t.MaxChange != nil && !math.IsInf(limit.Share, 1):
		return rep, errors.New("the configuration could not be tried on the traffic: " + why + "; --max-change any applies it nevertheless")
	}
	return rep, nil
}

// mayComeBack reports whether cfg is the last configuration that another has replaced.
func (a *App) mayComeBack(cfg *config.Config) bool {
	before := a.before.Load()
	return before != nil && *before == cfg.Hash()
}

// noteTried keeps a report for GET /reload, behind the time and the lines of verdict.
func (a *App) noteTried(verdict string, rep *replay.Report) {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n%s", time.Now().UTC().Format(time.RFC3339), verdict)
	rep.WriteExceeded(&b)
	rep.Write(&b)
	text := b.String()
	if len(text) > maxTried {
		text = strings.ToValidUTF8(text[:maxTried], "") + "…\n"
	}
	a.tried.Store(&text)
}

// lastTried returns the report of the last dry run with the traffic, or of the last reload that was tried on it.
func (a *App) lastTried() string {
	if text := a.tried.Load(); text != nil {
		return *text
	}
	return "# no configuration has been tried on the traffic since the start"
}

// clearSample empties the sample, and forgets the ids of its requests in the last report.
func (a *App) clearSample() {
	a.proxy.Sample().Clear()
	a.tried.Store(nil)
}

// replay says what cfg would do to the sampled traffic. One replay runs at a time.
func (a *App) replay(ctx context.Context, cfg *config.Config, limit replay.Limit) (rep *replay.Report) {
	defer func() { rep.Exceeded = append([]string{}, rep.Excess(limit)...) }()
	select {
	case a.replaying <- struct{}{}:
		defer func() { <-a.replaying }()
	case <-ctx.Done():
		return replay.Failed(context.Cause(ctx))
	}
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
		a.turns.Pass()
		e, err := newExplainer(unshaped(c), a.via)
		if err != nil {
			return replay.Failed(err)
		}
		defer e.Close()
		sides[i] = e.side(c)
	}
	rep, err := replay.Run(ctx, &replay.Input{
		Now: sides[0], Then: sides[1], Strata: strata, At: at, Since: since, CPU: a.share, Yield: a.turns.Pass,
		Protocol: func(ssp string) exchange.Protocol { return protocols[ssp] },
	})
	if err != nil {
		return replay.Failed(err)
	}
	return rep
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
