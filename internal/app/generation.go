package app

import (
	"time"

	"adbuffer/internal/config"
	"adbuffer/internal/dial"
	"adbuffer/internal/fleet"
	"adbuffer/internal/pool"
	"adbuffer/internal/route"
	"adbuffer/internal/ssp"
	"adbuffer/internal/tracing"
)

// generation is what one configuration made. It is never changed: a reload makes
// the next one, which has in common with it what goes on. Listeners, the proxy
// and the admin server outlive it.
type generation struct {
	cfg    *config.Config
	common common
	parts  []*part // one for each SSP, in the configuration's order
	table  *route.Table
	tracer *tracing.Tracer // nil while off

	// The same SSPs, as collectors want them.
	ssps    []*ssp.SSP
	pools   []*pool.Pool
	dialers []*dialer
}

// part is one SSP.
type part struct {
	cfg    *config.SSP
	ssp    *ssp.SSP
	dialer *dialer  // the pool's
	files  tlsFiles // as they were when the dialer was made
}

// part returns the SSP of that name, or nil.
func (g *generation) part(name string) *part {
	for _, p := range g.parts {
		if p.cfg.Name == name {
			return p
		}
	}
	return nil
}

func (g *generation) add(p *part) {
	g.parts = append(g.parts, p)
	g.ssps, g.pools, g.dialers = append(g.ssps, p.ssp), append(g.pools, p.ssp.Pool()), append(g.dialers, p.dialer)
}

// without returns the parts of g whose pools are not in next.
func (g *generation) without(next *generation) []*part {
	there := make(map[*pool.Pool]bool, len(next.pools))
	for _, p := range next.pools {
		there[p] = true
	}
	var gone []*part
	for _, p := range g.parts {
		if !there[p.ssp.Pool()] {
			gone = append(gone, p)
		}
	}
	return gone
}

// plan is a generation to come: what can fail has been done, and nothing that
// anybody could notice.
type plan struct {
	cfg    *config.Config
	common common
	ssps   []plannedSSP
	tracer *tracing.Tracer
}

// common is what every SSP takes from the rest of the configuration.
type common struct {
	patience time.Duration // how long an SSP is given as a rule
	via      string        // the name of this process in Via; "" = none is sent
	// maxBufferedBytes is server.max_buffered_bytes.
	maxBufferedBytes int
}

func (a *App) commonOf(cfg *config.Config) common {
	c := common{patience: cfg.Deadline.Default - cfg.Deadline.Reserve, maxBufferedBytes: cfg.Server.MaxBufferedBytes}
	if cfg.Server.Via {
		c.via = a.via
	}
	return c
}

// plannedSSP is an SSP to come.
type plannedSSP struct {
	cfg       *config.SSP
	endpoints dial.Endpoints
	files     tlsFiles
	was       *part      // as it is; nil where it is new
	dialer    *dialer    // was's, or one for a new pool
	pool      *pool.Pool // that new pool, where it replaces another; see prewarm
	fleet     *fleet.Fleet
}

// carryOut makes the generation that was planned: from now on its settings hold
// for what goes on.
func (p *plan) carryOut(was *generation) *generation {
	g := &generation{cfg: p.cfg, common: p.common, tracer: p.tracer}
	byName := make(map[string]*ssp.SSP, len(p.ssps))
	for i := range p.ssps {
		next := p.ssps[i].carryOut(was.common, p.common)
		g.add(next)
		byName[next.cfg.Name] = next.ssp
	}
	g.table = newTable(p.cfg.Routes, byName)
	return g
}

func (s *plannedSSP) carryOut(before, common common) *part {
	next := &part{cfg: s.cfg, dialer: s.dialer, files: s.files}
	o, po := sspOptions(s.cfg, &s.endpoints, common), poolOptions(s.cfg, s.endpoints.Scheme)
	o.QPS = qpsOptions(s.cfg, s.fleet)
	switch {
	case s.was == nil:
		next.ssp = ssp.New(o, pool.New(po, s.dialer))
	case s.was.dialer != s.dialer:
		// What the SSP counted goes on; what the pool and the dialer did begins at
		// 0, as counters may: it is about connections that the new pool never had,
		// and opened less closed stays what is open.
		s.pool.SetOptions(po)
		next.ssp = s.was.ssp.MovedTo(o, s.pool)
	case sameSettings(s.was.cfg, s.cfg) && before == common:
		next.ssp = s.was.ssp
	default:
		// The dialer first: the pool takes what it dials from then on for new.
		p := s.was.ssp.Pool()
		po.ConnVersion = p.Options().ConnVersion
		if s.dialer.set(s.cfg) {
			po.ConnVersion++
		}
		p.SetOptions(po)
		next.ssp = s.was.ssp.With(o)
	}
	return next
}
