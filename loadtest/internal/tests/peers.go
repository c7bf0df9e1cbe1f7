package tests

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// PeersOptions of a comparison.
type PeersOptions struct {
	Only    []string // programs to measure; none means all
	Require []string // programs that must be installed
	Conns   int      // client connections at saturation and at the fixed rate
	Rate    float64  // requests a second that every program must reach
	Rounds  int      // the result is their median
	Idle    int      // idle clients
}

// fastRate is a rate that only the fastest programs reach.
const fastRate = 15000.0

// peer is a program, its protocols towards upstreams, and whether clients of it use TLS.
type peer struct {
	name      string
	upstreams []string
	clients   bool // clients with TLS are compared
	fast      bool // it reaches fastRate
}

// peers are all programs, adbuffer first.
var peers = []peer{
	{"adbuffer", []string{"h1", "pipelined", "h1tls", "h2tls"}, true, true},
	{"nginx", []string{"h1", "h1tls"}, true, true},
	{"haproxy", []string{"h1", "h1tls", "h2tls"}, true, true},
	{"envoy", []string{"h1", "h1tls", "h2tls"}, true, false},
	{"caddy", []string{"h1", "h1tls", "h2tls"}, true, false},
	{"reverseproxy", []string{"h1", "h1tls", "h2tls"}, false, false},
	{"fastify", []string{"h1"}, false, false},
}

// PeerNames returns the names of all programs.
func PeerNames() (out []string) {
	for _, p := range peers {
		out = append(out, p.name)
	}
	return out
}

// comparison collects the trials of a comparison.
type comparison struct {
	PeersOptions
	e       *stage.Env
	test    *stage.Test
	body    []byte                // of every response
	up      map[string]*rig.Route // by protocol
	cert    rig.Certificate       // towards clients
	request load.Template
	length  time.Duration
}

// Peers compares adbuffer with other programs, towards upstreams and towards clients.
func Peers(ctx context.Context, e *stage.Env, o PeersOptions) (*stage.Test, error) {
	c := &comparison{PeersOptions: o, e: e, body: load.ConstantBody(1000), length: e.Time(10*time.Second, 2*time.Second)}
	c.request = stage.Presets()["ad"]
	c.test = &stage.Test{Kind: "peers", Title: "adbuffer beside other proxies", Question: "How much does one core carry, and what does a request cost, in adbuffer and in other proxies?",
		Needs: []string{"wrk"}, Rounds: o.Rounds, Interleave: true, Promises: peerPromises(o.Conns),
		Notes: []string{"Each proxy has a core to itself, wrk, h2load, generator and upstream share the other. The request is a GET of about 800 bytes, the response 1 KB of JSON.",
			"CPU µs a request holds better than requests/s where machines are shared: compare ratios within one run. Ratios are medians of the rounds' ratios.",
			fmt.Sprintf("Median of %d rounds. At saturation wrk sends over %d connections; at fixed rates latency counts from when each request was due.", o.Rounds, o.Conns),
			"Clients over TLS use TLS 1.3 without session tickets, and the upstream is cleartext HTTP/1.1."}}
	if err := c.startUpstreams(ctx); err != nil {
		return nil, err
	}
	var err error
	if c.cert, err = e.Rig.Certificate("peers", "localhost", "127.0.0.1"); err != nil {
		return nil, err
	}
	for _, p := range peers {
		if len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			continue
		}
		err := c.add(ctx, p)
		switch {
		case err == nil:
		case errors.Is(err, rig.ErrMissing) && !slices.Contains(o.Require, p.name):
			c.test.Missing = append(c.test.Missing, err.Error())
		default:
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	c.show()
	return c.test, nil
}

// startUpstreams starts the upstreams that all proxies share.
func (c *comparison) startUpstreams(ctx context.Context) error {
	plain, err := constantUpstream(c.e)
	if err != nil {
		return err
	}
	cert, err := c.e.Rig.Certificate("up", "localhost", "127.0.0.1")
	if err != nil {
		return err
	}
	serve := fmt.Sprintf("location / { return 200 '%s'; }", c.body)
	h1, h2 := &rig.Route{Name: "up1", TLS: &cert, Clients: "http1", Serve: serve}, &rig.Route{Name: "up2", TLS: &cert, Serve: serve}
	c.up = map[string]*rig.Route{"h1": {Addr: plain.Addr}, "h1tls": h1, "h2tls": h2}
	err = c.e.Rig.StartProgram(ctx, "nginx", c.e.LoadCores, "", h1, h2)
	if errors.Is(err, rig.ErrMissing) {
		delete(c.up, "h1tls")
		delete(c.up, "h2tls")
		c.test.Missing = append(c.test.Missing, "nginx as an upstream with TLS: no rows over TLS")
		return nil
	}
	return err
}

// add starts a program, and adds its trials.
func (c *comparison) add(ctx context.Context, p peer) error {
	servers, err := c.servers(ctx, p)
	if err != nil {
		return err
	}
	add := func(protocol, name, group, base string, steps ...stage.Step) {
		if t, ok := servers[protocol]; ok {
			t.Name, t.Cells, t.Group, t.Base, t.Steps = p.name+" "+name, []any{p.name}, group, base, steps
			if t.Last = group == "idle"; !t.Last {
				t.Derive = saturated
			}
			if strings.HasPrefix(name, "h2 ") {
				t.Tool = "h2load"
			}
			c.test.Trials = append(c.test.Trials, t)
		}
	}
	for _, protocol := range p.upstreams {
		group := strings.Replace(protocol, "pipelined", "h1", 1)
		steps := []stage.Step{{Load: c.sound(stage.WRK(c.request, c.Conns, c.length))}}
		at := func(rate float64) stage.Driver {
			return c.sound(stage.Calmly(stage.OpenLoop(c.Conns, rate, 500*time.Millisecond, c.length, c.request), false))
		}
		if c.Rate > 0 {
			steps = append(steps, stage.Step{Name: "fixed", Load: at(c.Rate)})
		}
		if p.fast && protocol == "h1" && c.Rate > 0 {
			steps = append(steps, stage.Step{Name: "fast", Load: unlessVoid(at(fastRate))})
		}
		add(protocol, protocol, group, "haproxy "+group, steps...)
	}
	for _, w := range c.clientWays() {
		if p.clients {
			add(w.protocol, w.name, w.name, "haproxy "+w.name, stage.Step{Load: c.sound(w.load)})
		}
	}
	for _, kind := range []string{"cleartext", "TLS", "HTTP/2"} {
		protocol := "clients"
		if kind == "cleartext" {
			protocol = "h1"
		}
		if c.Idle > 0 {
			add(protocol, "idle "+kind, "idle", "haproxy idle "+kind, stage.Step{Load: c.idle(kind)})
		}
	}
	return nil
}

// adbufferAs is adbuffer's protocol and pool for each protocol of the comparison.
var adbufferAs = map[string][2]string{"h1": {"http1", "max_conns: 1024"}, "clients": {"http1", "max_conns: 1024"}, "pipelined": {"http1-pipelined", "max_conns: 2, pipeline_depth: 64"},
	"h1tls": {"http1", "max_conns: 1024"}, "h2tls": {"http2", "max_conns: 2"}}

// servers starts a program. It returns a trial with only the server set for each protocol. The server
// of "clients" has TLS towards clients.
func (c *comparison) servers(ctx context.Context, p peer) (map[string]stage.Trial, error) {
	out := map[string]stage.Trial{}
	var routes []*rig.Route
	protocols := slices.Clone(p.upstreams)
	if p.clients {
		protocols = append(protocols, "clients")
	}
	for _, protocol := range protocols {
		up := c.up[strings.NewReplacer("pipelined", "h1", "clients", "h1").Replace(protocol)]
		if up == nil {
			continue
		}
		url, caFile, clients := "http://"+up.Addr, "", (*rig.Certificate)(nil)
		if up.TLS != nil {
			url, caFile = "https://"+up.Addr, up.TLS.CA
		}
		if protocol == "clients" {
			clients = &c.cert
		}
		if p.name == "adbuffer" {
			as := adbufferAs[protocol]
			out[protocol] = stage.Trial{Server: stage.Server{OneCore: true, Shared: new(stage.Shared), Config: stage.Config{Deadline: "2s", Cert: clients}},
				SSPs: []*stage.SSP{{Name: "ssp", URLs: []string{url + "/bid"}, CAFile: caFile, Protocol: as[0], Pool: as[1] + ", max_pending: 4096, pending_timeout: 1s"}}}
			continue
		}
		route := &rig.Route{Name: protocol, Upstreams: []string{url}, CAFile: caFile, HTTP2: protocol == "h2tls", TLS: clients}
		routes = append(routes, route)
		out[protocol] = stage.Trial{Server: stage.Server{Program: p.name, Route: route}}
	}
	if len(routes) == 0 {
		return out, nil
	}
	return out, c.e.Rig.StartProgram(ctx, p.name, c.e.ProxyCores, "", routes...)
}
