package reload

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/machine/lag"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/tracing"
)

// prepared is the next version before the swap. Every step that can fail has been done, and no request
// uses the version yet.
type prepared struct {
	was     *Version
	cfg     *config.Config
	common  common
	changes []config.Change
	ssps    []preparedSSP
	tracer  *tracing.Tracer
}

// preparedSSP is an SSP of the next version.
type preparedSSP struct {
	cfg    *config.SSP
	files  configfile.Content // content of the TLS files
	was    *Part              // the part in force; nil for a new SSP
	effect config.Effect      // the strongest effect of the SSP's changes; "" = nothing changes
	dialer *dialer            // the dialer of was, or a new dialer for a new pool
	pool   *pool.Pool         // the new pool if replaces() is true; set by prewarm
	events func(balancer.Event)
	lag    *lag.Meter
}

// replaces reports whether a new pool replaces the SSP's pool.
func (s *preparedSSP) replaces() bool { return s.was != nil && s.was.dialer != s.dialer }

func (s *preparedSSP) encrypted() bool { return s.cfg.Parsed.Scheme == "https" }

// prepare prepares the version of cfg that follows was. Its error is of type config.Errors and holds all
// errors; after an error, nothing has changed.
func (v *Versions) prepare(was *Version, cfg *config.Config, changes []config.Change) (*prepared, error) {
	p := &prepared{was: was, cfg: cfg, common: commonOf(cfg, v.opts.Via), changes: changes, tracer: was.Tracer}
	effects := effectsBySSP(changes)
	var faults config.Errors
	for i := range cfg.SSPs {
		c := &cfg.SSPs[i]
		s := preparedSSP{cfg: c, events: v.endpointEvents(c.Name), lag: v.opts.Lag, was: was.Part(c.Name), effect: effects[c.Name]}
		if err := v.prepareSSP(p, &s); err != nil {
			faults = append(faults, config.Error{Path: fmt.Sprintf("ssps[%d]", i), Value: c.Name, Rule: err.Error()})
			continue
		}
		p.ssps = append(p.ssps, s)
	}
	if cfg.Tracing != was.Config.Tracing {
		var err error
		p.tracer, err = v.newTracer(&cfg.Tracing)
		if err != nil {
			faults = append(faults, config.Error{Path: "tracing", Rule: err.Error()})
		}
	}
	if len(faults) > 0 {
		p.drop()
		return nil, faults
	}
	return p, nil
}

func (v *Versions) prepareSSP(p *prepared, s *preparedSSP) (err error) {
	// The content is remembered before the dialer reads the files, so that the next reload sees a change in
	// between.
	if s.encrypted() {
		s.files = configfile.Look(slices.Collect(maps.Values(tlsFiles(s.cfg))))
	}
	for _, c := range s.contentChanges() {
		p.changes = append(p.changes, c)
		s.effect = stronger(s.effect, c.Effect)
	}
	if s.was != nil && s.effect != config.NewPool {
		s.dialer = s.was.dialer
		return nil
	}
	s.dialer, err = newDialer(s.cfg, &v.opts)
	return err
}

// drop closes the new pools of a version that is not used.
func (p *prepared) drop() {
	for i := range p.ssps {
		if s := &p.ssps[i]; s.was == nil || s.replaces() {
			s.dialer.dial.Close()
		}
	}
	if p.tracer != p.was.Tracer {
		closeTracer(p.tracer, zap.NewNop()) // a tracer that was never used has no spans to lose
	}
}

// build makes the prepared version. It applies the new settings to the parts that the version shares with
// the previous one.
func (p *prepared) build(f *fleet.Fleet) *Version {
	next := &Version{Config: p.cfg, Hash: sync.OnceValue(p.cfg.Hash), common: p.common, Tracer: p.tracer}
	byName := make(map[string]*ssp.SSP, len(p.ssps))
	for i := range p.ssps {
		part := p.ssps[i].build(p.was.common, p.common, f)
		next.Parts, next.SSPs, next.Pools = append(next.Parts, part), append(next.SSPs, part.SSP), append(next.Pools, part.SSP.Pool())
		byName[part.Config.Name] = part.SSP
	}
	next.Table = newTable(p.cfg, byName, p.was.Table)
	return next
}

func (s *preparedSSP) build(before, common common, f *fleet.Fleet) *Part {
	next := &Part{Config: s.cfg, dialer: s.dialer, files: s.files}
	o, po := s.sspOptions(common, f), s.poolOptions(common)
	switch {
	case s.was == nil:
		next.SSP = ssp.New(o, pool.New(po, s.dialer))
	case s.replaces():
		// The counters of the SSP continue. The counters of pool and dialer start at 0, so that the number
		// of opened connections minus that of closed connections stays the number of the pool's own open
		// connections.
		s.pool.SetOptions(po)
		s.pool.Inherit(s.was.SSP.Pool()) // again, since an operator may have changed a state after prewarm
		next.SSP = s.was.SSP.MovedTo(o, s.pool)
	case s.effect == "" && before == common:
		next.SSP = s.was.SSP
	default:
		// The dialer comes first, so that every connection that the pool counts as new has the new settings.
		p := s.was.SSP.Pool()
		s.dialer.set(s.cfg)
		s.dialer.dial.SetEndpoints(s.cfg.Parsed)
		po.ConnVersion = p.Options().ConnVersion
		if s.effect == config.NewConnections {
			po.ConnVersion++
		}
		p.SetOptions(po)
		next.SSP = s.was.SSP.With(o)
	}
	return next
}

// tlsFiles returns the TLS files of an SSP, by the names of their keys.
func tlsFiles(c *config.SSP) map[string]string {
	return map[string]string{"ca_file": c.TLS.CAFile, "cert_file": c.TLS.CertFile, "key_file": c.TLS.KeyFile}
}

// contentChanges returns a change for each TLS file whose content changed while its name stayed.
func (s *preparedSSP) contentChanges() (changes []config.Change) {
	if s.was == nil || !s.encrypted() {
		return nil
	}
	was, is := tlsFiles(s.was.Config), tlsFiles(s.cfg)
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if file := is[key]; file != "" && was[key] == file && s.was.files[file] != s.files[file] {
			changes = append(changes, config.ContentChange("ssps["+s.cfg.Name+"].tls."+key, file, config.NewPool))
		}
	}
	return changes
}
