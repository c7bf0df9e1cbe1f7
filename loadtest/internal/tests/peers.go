package tests

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/engine"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// PeersOptions of a comparison.
type PeersOptions struct {
	Only    []string // programs; none is all
	Require []string // programs without which there is no comparison
	Conns   int      // at saturation and at the fixed rate
	Rate    float64  // requests a second, where all must keep up
	Rounds  int      // of which the median counts
	Idle    int      // clients
}

// fastRate is a rate at which only the fastest programs keep up.
const fastRate = 15000.0

// peer is a program, the protocols towards upstreams that it is compared in, and whether its
// clients may use TLS.
type peer struct {
	name      string
	upstreams []string
	clients   bool
	fast      bool // keeps up with fastRate
}

// All programs, adbuffer first.
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

// comparison is a comparison in the making.
type comparison struct {
	PeersOptions
	e       *engine.Env
	test    *engine.Test
	body    []byte                // of every response
	up      map[string]*rig.Route // by protocol
	cert    rig.Certificate       // towards clients
	request load.Template
	length  time.Duration
}

// Peers compares adbuffer with other programs, towards upstreams and towards clients.
func Peers(ctx context.Context, e *engine.Env, o PeersOptions) (*engine.Test, error) {
	c := &comparison{PeersOptions: o, e: e, body: load.ConstantBody(1000), length: e.Time(10*time.Second, 2*time.Second)}
	c.request = engine.Presets()["ad"]
	c.test = &engine.Test{Kind: "peers", Title: "adbuffer beside other proxies", Question: "How much does one core carry, and what does a request cost, in adbuffer and in what one might use instead?",
		Needs: []string{"wrk"}, Rounds: o.Rounds, Interleave: true, Promises: peerPromises(o.Conns),
		Notes: []string{"Each proxy has a core to itself, wrk, h2load, ab, generator and upstream share the other. The request is a GET of about 800 bytes, the response 1 KB of JSON.",
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
		case (errors.Is(err, rig.ErrMissing) || errors.Is(err, exec.ErrNotFound)) && !slices.Contains(o.Require, p.name):
			c.test.Missing = append(c.test.Missing, err.Error())
		default:
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	c.show()
	return c.test, nil
}

// startUpstreams starts what all proxies forward to.
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
	servers := map[string]engine.Server{}
	ssps := map[string][]*engine.SSP{}
	var routes []*rig.Route
	of := slices.Clone(p.upstreams)
	if p.clients {
		of = append(of, "clients")
	}
	for _, protocol := range of {
		to := strings.NewReplacer("pipelined", "h1", "clients", "h1").Replace(protocol)
		up := c.up[to]
		if up == nil {
			continue
		}
		scheme, caFile := "http://", ""
		if up.TLS != nil {
			scheme, caFile = "https://", up.TLS.CA
		}
		if p.name == "adbuffer" {
			server := engine.Server{OneCore: true, Config: engine.Config{Deadline: "2s"}}
			if protocol == "clients" {
				server.Config.TLS, server.Config.Cert = true, &c.cert
			}
			servers[protocol] = server
			pool := map[string]string{"pipelined": "max_conns: 2, pipeline_depth: 64", "h2tls": "max_conns: 2"}[protocol]
			if pool == "" {
				pool = "max_conns: 1024"
			}
			ssps[protocol] = []*engine.SSP{{Name: "ssp", URLs: []string{scheme + up.Addr + "/bid"}, CAFile: caFile, Pool: pool + ", max_pending: 4096, pending_timeout: 1s",
				Protocol: map[string]string{"h1": "http1", "clients": "http1", "pipelined": "http1-pipelined", "h1tls": "http1", "h2tls": "http2"}[protocol]}}
			continue
		}
		route := &rig.Route{Name: protocol, Upstreams: []string{scheme + up.Addr}, CAFile: caFile, HTTP2: protocol == "h2tls"}
		if protocol == "clients" {
			route.TLS = &c.cert
		}
		routes = append(routes, route)
		servers[protocol] = engine.Server{Program: p.name, Route: route}
	}
	if len(routes) > 0 {
		if err := c.e.Rig.StartProgram(ctx, p.name, c.e.ProxyCores, "", routes...); err != nil {
			return err
		}
	}
	add := func(protocol, name, group, base string, steps ...engine.Step) {
		server, ok := servers[protocol]
		if !ok {
			return
		}
		t := engine.Trial{Name: p.name + " " + name, Cells: []any{p.name}, Group: group, Base: base, Server: server, SSPs: ssps[protocol], Steps: steps}
		if t.Last = group == "idle"; !t.Last {
			t.Derive = saturated
		}
		c.test.Trials = append(c.test.Trials, t)
	}
	for _, protocol := range p.upstreams {
		group := strings.Replace(protocol, "pipelined", "h1", 1)
		steps := []engine.Step{{Load: c.sound(engine.WRK(c.request, c.Conns, c.length))}}
		at := func(name string, rate float64) {
			steps = append(steps, engine.Step{Name: name, Load: c.sound(engine.Calmly(engine.OpenLoop(c.Conns, rate, 500*time.Millisecond, c.length, c.request), false))})
		}
		if c.Rate > 0 {
			at("fixed", c.Rate)
		}
		if p.fast && protocol == "h1" && c.Rate > 0 {
			at("fast", fastRate)
		}
		add(protocol, protocol, group, "haproxy "+group, steps...)
	}
	for _, w := range c.clientWays() {
		if p.clients {
			add(w.protocol, w.name, w.name, "haproxy "+w.name, engine.Step{Load: c.sound(w.load)})
		}
	}
	for _, kind := range []string{"cleartext", "TLS", "HTTP/2"} {
		protocol := "clients"
		if kind == "cleartext" {
			protocol = "h1"
		}
		if c.Idle > 0 {
			add(protocol, "idle "+kind, "idle", "haproxy idle "+kind, engine.Step{Load: c.idle(kind)})
		}
	}
	return nil
}

// clientWay is a way in which clients use connections.
type clientWay struct {
	name, protocol, title string
	load                  engine.Driver
}

func (c *comparison) clientWays() []clientWay {
	fields := []string{"-f", "TLS1.3"}
	for _, f := range c.request.Headers {
		fields = append(fields, "-H", f.Name+": "+f.Value)
	}
	return []clientWay{
		{"tls", "clients", "HTTP/1.1 over TLS, 64 clients", engine.WRK(c.request, 64, c.length)},
		{"h2 64x1", "clients", "HTTP/2 over TLS, 64 connections × 1 stream", engine.H2Load(c.request, 64, 1, c.length)},
		{"h2 8x8", "clients", "HTTP/2 over TLS, 8 connections × 8 streams", engine.H2Load(c.request, 8, 8, c.length)},
		{"new tls", "clients", "a new TLS connection for each request, 16 at once", engine.AB(load.Fill(c.request.Path, 1), int(400*c.length.Seconds()), 16, fields...)},
		{"1000 clients", "h1", "cleartext HTTP/1.1, 1 000 clients", engine.WRK(c.request, 1000, c.length)},
	}
}

// minShare of its core makes a proxy saturated.
const minShare = 0.85

// saturated doubts a proxy that had less than its core: it was kept from it by other work, or
// by a load that could not fill it.
func saturated(s *engine.Sample) {
	if share := s.Values["cpu_s"] / s.Values["seconds"]; share < minShare {
		s.Doubts = append(s.Doubts, fmt.Sprintf("at saturation it used only %.0f %% of its core", share*100))
	}
}

// sound voids a row whose requests fail, and one whose proxy does not give exactly the
// upstream's response.
func (c *comparison) sound(drive engine.Driver) engine.Driver {
	checked := false
	return func(ctx context.Context, s *engine.Stage) (*engine.Sample, error) {
		if !checked {
			if err := forwards(ctx, s, c.request, c.body); err != nil {
				return &engine.Sample{Void: "does not return the upstream's answer: " + err.Error()}, nil
			}
			checked = true
		}
		sample, err := drive(ctx, s)
		if err == nil && (sample.Values["failed"] > 0 || sample.Values["answered"] == 0) {
			sample.Void = fmt.Sprintf("%.0f requests failed, %.0f did not: %s", sample.Values["failed"], sample.Values["answered"], sample.Texts["errors"])
		}
		return sample, err
	}
}

// idle measures the memory of idle clients, which have made one request each.
func (c *comparison) idle(kind string) engine.Driver {
	return func(ctx context.Context, s *engine.Stage) (*engine.Sample, error) {
		rss := func() (float64, error) {
			u, err := load.ReadTree(s.PID)
			return float64(u.RSS), err
		}
		order := rig.HoldOrder{URL: s.URL() + load.Fill(c.request.Path, 1), Headers: c.request.Headers, Connections: 50, HTTP2: kind == "HTTP/2"}
		warm, err := s.Rig.Hold(order, s.LoadCores)
		if err == nil {
			warm.Stop()
			engine.Sleep(ctx, 1500*time.Millisecond)
		}
		before, err := rss()
		if err != nil {
			return nil, err
		}
		order.Connections = c.Idle
		held, err := s.Rig.Hold(order, s.LoadCores)
		if hold := (*rig.HoldError)(nil); errors.As(err, &hold) {
			return &engine.Sample{Void: hold.Error()}, nil
		}
		if err != nil {
			return nil, err
		}
		defer held.Stop()
		// What is freed lazily, after the requests that each client has sent.
		engine.Sleep(ctx, 3*time.Second)
		after, err := rss()
		return &engine.Sample{Values: engine.Values{"before.rss": before, "with.rss": after, "kib": (after - before) / 1024 / float64(c.Idle)}}, err
	}
}

// forwards says why what a stage serves is not exactly the upstream's response.
func forwards(ctx context.Context, s *engine.Stage, t load.Template, want []byte) error {
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL()+load.Fill(t.Path, 1), nil)
	if err != nil {
		return err
	}
	for _, f := range t.Headers {
		req.Header.Set(f.Name, f.Value)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != 200:
		return fmt.Errorf("status %d: %.100q", resp.StatusCode, body)
	case !bytes.Equal(body, want):
		return fmt.Errorf("a body of %d bytes, not the upstream's %d", len(body), len(want))
	case resp.Header.Get("Content-Type") != "application/json":
		return fmt.Errorf("Content-Type %q, not the upstream's", resp.Header.Get("Content-Type"))
	}
	return nil
}
