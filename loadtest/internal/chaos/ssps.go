package chaos

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/rig"
)

// ssp is a simulated SSP. It runs in this process.
type ssp struct {
	sspKind
	sims       []*sspsim.SSP // its endpoints
	config     rig.SSP
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
	// apart is the behaviour of an SSP that has a route of its own and is not in the mixed traffic.
	apart     *sspsim.Behaviour
	endpoints int // the last of several is the spare, unless they have weights
	weights   []int
	resolved  bool // adbuffer looks up its address, if the machine allows a name server
	chained   bool // a long chain of certificates follows the SSP's own certificate
	shaped    bool // a limit drops requests, most of the time those that the SSP rarely fills
}

const poolLimits = "idle_timeout: 2s, max_age: 20s, max_conns: 64"

var sspKinds = []sspKind{
	{name: "calm1", speaks: sspsim.HTTP1, protocol: "http1", healthy: true, resolved: true},
	{name: "calm2", speaks: sspsim.TLSHTTP2, protocol: "auto", healthy: true},
	{name: "plain", speaks: sspsim.HTTP1, protocol: "http1"},
	{name: "pipelined", speaks: sspsim.HTTP1, protocol: "http1-pipelined", pool: ", max_pending: 256, pipeline_depth: 8, pipeline_methods: all"},
	{name: "tls", speaks: sspsim.TLSHTTP1, protocol: "http1", shaped: true},
	{name: "h2", speaks: sspsim.TLSHTTP2, protocol: "http2", shaped: true},
	{name: "h2c", speaks: sspsim.H2C, protocol: "h2c"},
	{name: "auto", speaks: sspsim.TLSAuto, protocol: "auto"},

	{name: "trial", speaks: sspsim.HTTP1, protocol: "http1", apart: &sspsim.Behaviour{Latency: sspsim.Constant(40 * time.Millisecond)}},
	{name: "hung", speaks: sspsim.H2C, protocol: "h2c", apart: &sspsim.Behaviour{Faults: sspsim.Faults{Stall: sspsim.Always}}},
	{name: "large", speaks: sspsim.HTTP1, protocol: "http1", apart: &large, pool: ", max_pending: 4096, pending_timeout: 2s"},
	{name: "group", speaks: sspsim.HTTP1, protocol: "http1", apart: &healthy, endpoints: 3},
	{name: "turns", speaks: sspsim.HTTP1, protocol: "http1", apart: &closing, endpoints: 2, weights: []int{3, 1}},
	{name: "chain", speaks: sspsim.TLSHTTP1, protocol: "http1", apart: &closing, chained: true},
	{name: "blocks", speaks: sspsim.HTTP1, protocol: "http1", apart: &emptyGzip},
}

// closing is the behaviour of an SSP that closes each connection after a response.
var closing = func() sspsim.Behaviour {
	b := healthy
	b.Connections = sspsim.Connections{MaxRequests: 1, Announce: true}
	return b
}()

// emptyGzip is the behaviour of an SSP whose bodies decode to nothing.
var emptyGzip = sspsim.Behaviour{Response: sspsim.Response{Echo: true, Kind: sspsim.EmptyGzip, Size: sspsim.Size{Constant: 256 << 10},
	Headers: []sspsim.Field{{Name: "Content-Encoding", Value: "gzip"}}}}

// calm returns the behaviour of an SSP that is healthy. A healthy SSP over HTTP/1 closes connections, so that adbuffer must
// dial it now and then, also while adbuffer has no descriptor left. Healthy SSPs over HTTP/2 refuse long fields, and single
// requests if a client asks for that, as nginx and HAProxy do.
func (k sspKind) calm() sspsim.Behaviour {
	b := *cmp.Or(k.apart, &healthy)
	switch {
	case k.healthy && k.speaks == sspsim.HTTP1:
		b.Connections = sspsim.Connections{MaxRequests: 20, Announce: true}
	case k.healthy:
		b.Connections.MaxField, b.Faults.ResetStream.Code = 8<<10, "PROTOCOL_ERROR"
	}
	return b
}

// large is the behaviour of an SSP with large headers and bodies.
var large = sspsim.Behaviour{Latency: sspsim.Lognormal(5*time.Millisecond, 20*time.Millisecond),
	Response: sspsim.Response{Echo: true, Kind: sspsim.Raw, Size: sspsim.Size{P50: 30_000, P95: 48_000, Max: 50_000},
		Headers: []sspsim.Field{{Name: "X-Pad", Value: strings.Repeat("v", 15_000)}}}}

// mixed returns the SSPs of the mixed traffic.
func (r *run) mixed() []*ssp {
	n := slices.IndexFunc(r.ssps, func(s *ssp) bool { return s.apart != nil })
	if n < 0 {
		n = len(r.ssps)
	}
	return r.ssps[:n]
}

func (r *run) named(name string) int {
	return slices.IndexFunc(r.ssps, func(s *ssp) bool { return s.name == name })
}

func (r *run) startSSPs() {
	for i, k := range sspKinds {
		s := &ssp{sspKind: k, config: rig.SSP{Name: k.name, Protocol: k.protocol,
			Pool: poolLimits + cmp.Or(k.pool, ", max_pending: 256"), Weights: k.weights, Spare: k.endpoints > 1 && k.weights == nil}}
		r.ssps = append(r.ssps, s)
		s.behaviours = slices.DeleteFunc(behavioursFor(k), func(m namedBehaviour) bool { return !r.selects(m.name) })
		s.current.Store("healthy")
		options := sspsim.Options{Protocol: k.speaks, Seed: r.options.seed + uint64(i), Behaviour: k.calm(),
			OnRequest:     func(q *sspsim.Request) { r.log.receive(i, k.name, s.current.Load().(string), q) },
			OnUnprocessed: func(target string) { r.log.refuse(i, k.name, s.current.Load().(string), target) }}
		if k.chained {
			options.ExtraCertificates = r.extra
		}
		for range max(1, k.endpoints) {
			sim := rig.Must(sspsim.Start(options))(r.Rig)
			s.sims, s.config.URLs = append(s.sims, sim), append(s.config.URLs, sim.URL())
		}
		if k.resolved && r.resolver != nil {
			for _, ip := range resolvedAddrs[1:] {
				options.Addr = strings.Replace(s.sims[0].Addr(), resolvedAddrs[0], ip, 1)
				s.sims = append(s.sims, rig.Must(sspsim.Start(options))(r.Rig))
			}
		}
		if k.healthy {
			// The window of the breaker is empty after a pause of all clients: otherwise it might hold an attack, but no more
			// of the honest requests.
			s.config.More = append(s.config.More, fmt.Sprintf("timeouts: {connect: %[1]v, tls_handshake: %[1]v}", r.options.patience), "breaker: {window: 7s}")
		}
		if ca := s.sims[0].CA(); ca != nil {
			s.config.CAFile = filepath.Join(r.Dir, "chaos-ca-"+k.name+".pem")
			r.Check(ca.WriteFile(s.config.CAFile))
		}
	}
}

// changeBehaviours changes the behaviour of one SSP until the context ends. The SSP is healthy while
// clients pause.
func (r *run) changeBehaviours(ctx context.Context, s *ssp, rnd *rand.Rand) {
	for ctx.Err() == nil {
		m := namedBehaviour{name: "healthy", behaviour: s.calm()}
		if len(s.behaviours) > 0 && !r.pausing.Load() && rnd.IntN(5) < 3 {
			m = s.behaviours[rnd.IntN(len(s.behaviours))]
		}
		b := m.behaviour
		b.Response.Kind = []sspsim.Kind{sspsim.OpenRTB, sspsim.OpenRTB, sspsim.VAST, sspsim.Raw}[rnd.IntN(4)]
		for _, sim := range s.sims {
			r.Check(sim.Set(b))
		}
		s.current.Store(m.name)
		r.behavioursSeen.add(m.name, "")
		if !s.healthy && rnd.IntN(8) == 0 {
			s.sims[0].CloseConnections()
		}
		rig.Sleep(ctx, 300*time.Millisecond+time.Duration(rnd.Int64N(int64(2500*time.Millisecond))))
	}
}
