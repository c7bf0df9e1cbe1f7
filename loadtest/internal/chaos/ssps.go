package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/engine"
)

// ssp is a simulated SSP. It runs in this process.
type ssp struct {
	*sspsim.SSP
	name       string
	healthy    bool // always
	config     engine.SSP
	behaviours []namedBehaviour // the behaviours that it may have
	current    atomic.Value     // the name of its behaviour
}

// sspKind is an SSP's name, its protocol and its pool.
type sspKind struct {
	name     string
	speaks   sspsim.Protocol
	protocol string // in adbuffer's configuration
	pool     string
	healthy  bool
}

const poolLimits = "idle_timeout: 2s, max_age: 20s, max_conns: 64, max_pending: 256"

var sspKinds = []sspKind{
	{name: "calm1", speaks: sspsim.HTTP1, protocol: "http1", healthy: true},
	{name: "calm2", speaks: sspsim.TLSHTTP2, protocol: "http2", healthy: true},
	{name: "plain", speaks: sspsim.HTTP1, protocol: "http1"},
	{name: "pipelined", speaks: sspsim.HTTP1, protocol: "http1-pipelined", pool: ", pipeline_depth: 8, pipeline_methods: all"},
	{name: "tls", speaks: sspsim.TLSHTTP1, protocol: "http1"},
	{name: "h2", speaks: sspsim.TLSHTTP2, protocol: "http2"},
	{name: "h2c", speaks: sspsim.H2C, protocol: "h2c"},
	{name: "auto", speaks: sspsim.TLSAuto, protocol: "auto"},
}

// startSSPs starts an SSP of each kind.
func (r *run) startSSPs() error {
	for i, k := range sspKinds {
		s := &ssp{name: k.name, healthy: k.healthy, behaviours: behavioursFor(k)}
		s.current.Store("healthy")
		var err error
		s.SSP, err = sspsim.Start(sspsim.Options{Protocol: k.speaks, Seed: r.options.Seed + uint64(i), Behaviour: healthy,
			OnRequest: func(q *sspsim.Request) { r.log.receive(i, k.name, s.current.Load().(string), q) }})
		if err != nil {
			return err
		}
		r.ssps = append(r.ssps, s)
		s.config = engine.SSP{Name: k.name, URLs: []string{s.URL()}, Protocol: k.protocol, Pool: poolLimits + k.pool}
		if k.healthy {
			s.config.More = append(s.config.More, fmt.Sprintf("timeouts: {connect: %[1]v, tls_handshake: %[1]v}", r.options.Patience))
		}
		if s.CA() != nil {
			s.config.CAFile = filepath.Join(r.env.Rig.Dir, "chaos-ca-"+k.name+".pem")
			if err := s.CA().WriteFile(s.config.CAFile); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeBehaviours changes the behaviour of one SSP until the context ends. The SSP is healthy while
// clients pause.
func (r *run) changeBehaviours(ctx context.Context, s *ssp, rnd *rand.Rand) {
	for ctx.Err() == nil {
		m := namedBehaviour{name: "healthy", behaviour: healthy}
		if !r.pausing.Load() && rnd.IntN(5) < 3 {
			m = s.behaviours[rnd.IntN(len(s.behaviours))]
		}
		b := m.behaviour
		b.Response.Kind = []sspsim.Kind{sspsim.OpenRTB, sspsim.OpenRTB, sspsim.VAST, sspsim.Raw}[rnd.IntN(4)]
		if err := s.Set(b); err != nil {
			r.fail(fmt.Errorf("SSP %s, %s: %w", s.name, m.name, err))
			return
		}
		s.current.Store(m.name)
		r.behavioursSeen.add(0, m.name)
		if !s.healthy && rnd.IntN(8) == 0 {
			s.CloseConnections()
		}
		engine.Sleep(ctx, 300*time.Millisecond+time.Duration(rnd.Int64N(int64(2500*time.Millisecond))))
	}
}
