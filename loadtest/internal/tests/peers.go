package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// peersOptions are the flags of the test peers.
type peersOptions struct {
	only    []string // programs to measure; none means all
	rate    float64  // requests a second that every program must reach; 0 measures at saturation only
	rounds  int      // results are the medians of this many rounds
	idle    int      // idle clients
	profile string   // file for a CPU profile of adbuffer at saturation; "" writes none
	readme  string   // file in which the tables replace the marked part; "" is none
	than    string   // executable of another build, with which adbuffer is compared instead; "" is none
}

// peerConns is the number of client connections at saturation and at the fixed rates.
const peerConns = 64

// fastRate is a rate that only the fastest programs reach.
const fastRate = 15000.0

// peer is a program, with its protocols towards upstreams.
type peer struct {
	name      string
	upstreams []string
	clients   bool // it is also compared with clients over TLS
	fast      bool // it can reach fastRate
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

// peerNames returns the names of all programs.
func peerNames() (out []string) {
	for _, p := range peers {
		out = append(out, p.name)
	}
	return out
}

// comparison is one run of the test peers.
type comparison struct {
	*rig.Rig
	peersOptions
	body    []byte                // of every response
	up      map[string]*rig.Route // by protocol
	cert    *rig.Certificate      // towards clients
	request load.Template
	length  time.Duration
	rows    []*peerRow
	holding []*idleRow
}

// peersCommand compares adbuffer with other programs, towards upstreams and towards clients.
func peersCommand() Command {
	o := peersOptions{}
	known := peerNames()
	return Command{Name: "peers", Short: "adbuffer beside nginx, HAProxy, Envoy, Caddy, net/http and fastify",
		Question: "How much does one core carry, and what does a request cost, in adbuffer and in other proxies?",
		Long: `Measures adbuffer and its peers in one run, towards upstreams and towards clients: CPU µs a
request, requests/s, latencies and memory, at saturation (driven by wrk and h2load) and at
fixed rates (by the generator), each proxy alone on core 0, everything else on core 1. Rounds
of all proxies take turns. A proxy must first return exactly the upstream's response, and a row
with errors is void. Further rows ask eight SSPs for each request, merged and not merged: CPU µs a
leg, which is one SSP's part of the request. Envoy is taken from $ENVOY or $PATH. The exit status is 1 if a promise was
broken. --readme writes the table of a README: medians of the rounds, with the least and the most.

--than compares adbuffer with another build of it, at saturation and nothing else: both run on one
core at the same time, so that the noise of the machine is the same for both.`,
		Test: func(e *rig.Rig) { comparePeers(e, o) },
		Example: "  go run ./loadtest peers --scale 0.3\n  go run ./loadtest peers --rounds 5 --readme README.md\n" +
			"  go run ./loadtest peers --only adbuffer,haproxy --rounds 5 --rate 10000\n" +
			"  go run ./loadtest peers --than /tmp/adbuffer-before --rounds 20 --scale 0.2",
		Flags: func(f *pflag.FlagSet) {
			f.StringSliceVar(&o.only, "only", nil, "programs to measure; default: all that are installed of "+strings.Join(known, ","))
			f.Float64Var(&o.rate, "rate", 5000, "fixed `requests/s`; 0 measures at saturation only")
			f.IntVar(&o.rounds, "rounds", 3, "rounds, of which the median counts")
			f.IntVar(&o.idle, "idle", 10000, "idle clients; 0 leaves them out")
			f.StringVar(&o.than, "than", "", "another `executable` of adbuffer to compare with, instead of other programs")
			f.StringVar(&o.profile, "profile", "", "`file` for a CPU profile of adbuffer, with which go build optimizes it")
			f.StringVar(&o.readme, "readme", "", "Markdown `file` whose marked part becomes the tables of the comparison")
		},
		Check: func(f *pflag.FlagSet) error {
			for _, name := range o.only {
				if !slices.Contains(known, name) {
					return fmt.Errorf("%q: must be one of %s", name, strings.Join(known, ","))
				}
			}
			if o.rounds < 1 || o.idle < 0 || o.rate < 0 {
				return errors.New("--rounds must be at least 1, --idle and --rate at least 0")
			}
			for _, name := range []string{"only", "rate", "idle", "profile", "readme"} {
				if o.than != "" && f.Changed(name) {
					return fmt.Errorf("--than compares two builds of adbuffer at saturation: leave out --%s", name)
				}
			}
			return nil
		},
	}
}

func comparePeers(e *rig.Rig, o peersOptions) {
	r := e.Rep
	e.Needs("wrk")
	c := &comparison{Rig: e, peersOptions: o, body: []byte(kilobyte),
		length: e.Time(10*time.Second, 2*time.Second), request: rig.Presets()["ad"]}
	c.startUpstreams()
	c.cert = e.Certificate("peers", "localhost", "127.0.0.1")
	if o.than != "" {
		c.compareBuilds()
		return
	}
	r.Note("Each proxy has a core to itself, wrk, h2load, generator and upstream share the other. The request is a " +
		"GET of about 800 bytes, the response 1 KB of JSON.")
	r.Note("CPU µs a request holds better than requests/s where machines are shared: compare ratios within one run. " +
		"Ratios are medians of the rounds' ratios.")
	r.Note("Medians of %d rounds, with the least and the most. At saturation wrk sends over %d connections; at "+
		"fixed rates latency counts from when each request was due.", o.rounds, peerConns)
	r.Note("Clients over TLS use TLS 1.3 without session tickets, and the upstream is cleartext HTTP/1.1.")
	for _, p := range peers {
		if len(o.only) > 0 && !slices.Contains(o.only, p.name) {
			continue
		}
		if !e.Has(strings.TrimPrefix(p.name, "adbuffer")) {
			continue
		}
		e.Next("peers: starting %s", p.name)
		c.add(p, c.startPeer(p))
		if p.name == "adbuffer" {
			c.addFanOuts()
		}
	}
	c.measureRows()
	c.show()
	c.judge()
	if o.profile != "" {
		c.writeProfile()
	}
	if o.readme != "" {
		e.Check(r.WriteMeasured(o.readme))
	}
}

// startUpstreams starts the upstreams that all proxies share.
func (c *comparison) startUpstreams() {
	c.up = map[string]*rig.Route{"h1": constantUpstream(c.Rig, kilobyte), "fan-out h1": constantUpstream(c.Rig, fanOutBid)}
	if !c.Has("nginx") {
		c.Rep.Misses("nginx as an upstream with TLS: no rows over TLS")
		return
	}
	cert := c.Certificate("up", "localhost", "127.0.0.1")
	serve := fmt.Sprintf("location / { return 200 '%s'; }", c.body)
	h1 := &rig.Route{Name: "up1", TLS: cert, Clients: "http1", Serve: serve}
	h2 := &rig.Route{Name: "up2", TLS: cert, Serve: serve}
	bids := &rig.Route{Name: "up3", TLS: cert, Serve: fmt.Sprintf("location / { return 200 '%s'; }", fanOutBid)}
	c.StartProgram("nginx", c.LoadCores, "", h1, h2, bids)
	c.up["h1tls"], c.up["h2tls"], c.up["fan-out h2tls"] = h1, h2, bids
}

// add adds the rows of a program: one for each protocol of its SSPs, and one for each way of its clients.
// A row needs a stage: without nginx there is no upstream with TLS.
func (c *comparison) add(p peer, servers map[string]*rig.Stage) {
	at := func(rate float64) rig.Load {
		return rig.GenerateRetried(rig.OpenLoop(peerConns, rate, 500*time.Millisecond, c.length, c.request), false)
	}
	for _, protocol := range p.upstreams {
		row := &peerRow{peer: p.name, way: protocol, stage: servers[protocol], check: c.returnsExactly(servers[protocol])}
		row.loads[saturated] = rig.WRK(c.request, peerConns, c.length)
		if c.rate > 0 {
			row.loads[fixed] = at(c.rate)
		}
		if p.fast && protocol == "h1" && c.rate > 0 {
			row.loads[fast] = at(fastRate)
		}
		c.rows = append(c.rows, row)
	}
	for _, w := range c.clientWays(peerConns) {
		if p.clients && (!strings.HasPrefix(w.name, "h2 ") || c.Has("h2load")) {
			c.rows = append(c.rows, &peerRow{peer: p.name, way: w.name, stage: servers[w.protocol], loads: peerLoads{w.load},
				check: c.returnsExactly(servers[w.protocol])})
		}
	}
	c.rows = slices.DeleteFunc(c.rows, func(r *peerRow) bool { return r.stage == nil })
	for _, kind := range idleKinds {
		s := servers["clients"]
		if kind == "cleartext" {
			s = servers["h1"]
		}
		if c.idle > 0 && s != nil {
			c.holding = append(c.holding, &idleRow{peer: p.name, kind: kind, stage: s})
		}
	}
}

// asAdbuffer is adbuffer's protocol and pool for each protocol of the comparison.
var asAdbuffer = map[string][2]string{
	"h1": {"http1", "max_conns: 1024"}, "clients": {"http1", "max_conns: 1024"},
	"pipelined": {"http1-pipelined", "max_conns: 2, pipeline_depth: 64"},
	"h1tls":     {"http1", "max_conns: 1024"}, "h2tls": {"http2", "max_conns: 2"},
}

// sspOf returns an upstream as an SSP of adbuffer, for a protocol of the comparison.
func (c *comparison) sspOf(protocol string, up *rig.Route) *rig.SSP {
	as := asAdbuffer[protocol]
	ssp := &rig.SSP{Name: "ssp", URLs: []string{"http://" + up.Addr + "/bid"}, Protocol: as[0],
		Pool: as[1] + ", max_pending: 4096, pending_timeout: 1s"}
	if up.TLS != nil {
		ssp.URLs[0], ssp.CAFile = "https://"+up.Addr+"/bid", up.TLS.CA
	}
	return ssp
}

// startPeer starts a program. It returns a stage for each protocol towards upstreams, and the stage "clients", which
// has TLS towards clients. The processes run until the end of the test.
func (c *comparison) startPeer(p peer) map[string]*rig.Stage {
	protocols := slices.Clone(p.upstreams)
	if p.clients {
		protocols = append(protocols, "clients")
	}
	setups := map[string]rig.Setup{}
	var routes []*rig.Route
	for _, protocol := range protocols {
		up := c.up[strings.NewReplacer("pipelined", "h1", "clients", "h1").Replace(protocol)]
		if up == nil {
			continue
		}
		route := &rig.Route{Name: protocol, Upstreams: []string{"http://" + up.Addr}, HTTP2: protocol == "h2tls"}
		if up.TLS != nil {
			route.Upstreams[0], route.CAFile = "https://"+up.Addr, up.TLS.CA
		}
		if protocol == "clients" {
			route.TLS = c.cert
		}
		if p.name == "adbuffer" {
			setups[protocol] = rig.Setup{OneCore: true, Config: rig.Config{Deadline: "2s", Cert: route.TLS}, SSPs: []*rig.SSP{c.sspOf(protocol, up)}}
			continue
		}
		routes = append(routes, route)
		setups[protocol] = rig.Setup{Program: p.name, Route: route}
	}
	if len(routes) > 0 {
		c.StartProgram(p.name, c.ProxyCores, "", routes...)
	}
	out := map[string]*rig.Stage{}
	for protocol, setup := range setups {
		out[protocol] = c.Start(setup)
	}
	return out
}

func (c *comparison) returnsExactly(s *rig.Stage) func() error {
	return func() error { return forwards(c.Ctx, s, c.request, c.body) }
}

// measureRows measures one round of all rows after the other, so that changes of the machine's speed affect all rows
// alike. It measures idle clients once, at the end.
func (c *comparison) measureRows() {
	for n := range c.rounds {
		for _, row := range c.rows {
			if row.void != "" {
				continue
			}
			c.Next("peers: %s %s, round %d of %d", row.peer, row.way, n+1, c.rounds)
			if n == 0 {
				if err := row.check(); err != nil {
					row.void = "does not return what upstreams respond: " + err.Error()
					continue
				}
			}
			row.measure()
		}
	}
	for _, row := range c.holding {
		c.Next("peers: %s idle %s", row.peer, row.kind)
		row.measure(c.Rig, c.request, c.idle)
	}
}

// writeProfile writes one CPU profile of adbuffer in all its rows at saturation.
func (c *comparison) writeProfile() {
	args := []string{"tool", "pprof", "-proto"}
	for _, row := range c.rows {
		if row.peer != "adbuffer" || row.void != "" {
			continue
		}
		c.Next("peers: a profile of adbuffer, %s", row.way)
		row.stage.Beside(row.loads[saturated], func(context.Context) {
			path := fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", c.length.Seconds()/2)
			args = append(args, c.Write("*.pprof", rig.Must(row.stage.Adbuffer.Ask(path))(c.Rig)))
		})
	}
	merged := rig.Must(exec.CommandContext(c.Ctx, "go", args...).Output())(c.Rig)
	c.Check(os.WriteFile(c.profile, merged, 0o644))
}
