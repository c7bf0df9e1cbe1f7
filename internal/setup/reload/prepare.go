package reload

import (
	"fmt"
	"maps"
	"slices"

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

// prepared is the next version before the swap. Every step that can fail is done, and no request
// uses it.
type prepared struct {
	was     *Version
	cfg     *config.Config
	hash    string
	common  common
	changes []config.Change
	ssps    []preparedSSP
	tracer  *tracing.Tracer
}

// preparedSSP is an SSP of the next version.
type preparedSSP struct {
	cfg    *config.SSP
	files  configfile.Content // of the TLS files
	was    *Part              // the part in force; nil for a new SSP
	effect config.Effect      // the strongest of its changes; "" = nothing changes
	dialer *dialer            // was's, or a new one for a new pool
	pool   *pool.Pool         // the new pool if it replaces another one; see prewarm
	events func(balancer.Event)
	lag    *lag.Meter
}

// replaces reports whether the SSP gets a pool in place of another.
func (s *preparedSSP) replaces() bool { return s.was != nil && s.was.dialer != s.dialer }

func (s *preparedSSP) encrypted() bool { return s.cfg.Parsed.Scheme == "https" }

// prepare prepares the version of cfg that follows was. Its error is config.Errors with all errors;
// in that case nothing has changed.
func (v *Versions) prepare(was *Version, cfg *config.Config, changes []config.Change) (*prepared, error) {
	p := &prepared{was: was, cfg: cfg, hash: cfg.Hash(), common: commonOf(cfg, v.opts.Via), changes: changes, tracer: was.Tracer}
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
	// The content is read first, so that the next reload sees a change made meanwhile.
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
		closeTracer(p.tracer, zap.NewNop()) // it has no spans
	}
}

// build makes the prepared version. From then on its settings apply to all parts that it shares
// with the previous version.
func (p *prepared) build(f *fleet.Fleet) *Version {
	next := &Version{Config: p.cfg, Hash: p.hash, common: p.common, Tracer: p.tracer}
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
		// The SSP's counters continue. The counters of pool and dialer begin at 0: they count
		// connections that the new pool never had. So opened minus closed stays the number of open
		// connections.
		s.pool.SetOptions(po)
		s.pool.Inherit(s.was.SSP.Pool()) // once more: an operator may have changed something since
		next.SSP = s.was.SSP.MovedTo(o, s.pool)
	case s.effect == "" && before == common:
		next.SSP = s.was.SSP
	default:
		// The dialer first: the pool counts connections that it dials from then on as new.
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

// tlsFiles are the TLS files of an SSP, by their settings.
func tlsFiles(c *config.SSP) map[string]string {
	return map[string]string{"ca_file": c.TLS.CAFile, "cert_file": c.TLS.CertFile, "key_file": c.TLS.KeyFile}
}

// contentChanges are the TLS files that keep their names and have another content.
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
