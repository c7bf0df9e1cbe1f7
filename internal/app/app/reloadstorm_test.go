package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// storm makes random configurations of up to four SSPs behind three routes.
type storm struct {
	t    *testing.T
	rnd  *rand.Rand
	sims []*sspsim.SSP
	how  []func() string // the protocol of each of sims
	ca   string          // a file that is a good authority, until it is spoilt

	mu   sync.Mutex
	ssps map[string]sspNames // by the hash of each configuration that may be in force
}

// sspNames are the names of a configuration's SSPs, and of those among them that use TLS.
type sspNames struct{ all, overTLS string }

// next returns the configuration of the n-th reload.
func (s *storm) next() setup {
	var names []string
	var all setup
	for i, name := range []string{"a", "b", "c", "d"} {
		if i > 0 && s.rnd.IntN(2) == 0 {
			continue
		}
		settings := []string{fmt.Sprintf("max_in_flight: %d", 1000+s.rnd.IntN(2)), "qps: {limit: " + s.pick("0", "1000000", "900000") + "}"}
		settings = append(settings, fmt.Sprintf("pool: {max_conns: %d, max_idle: %d, min_idle: %d, linger: %s}",
			40+s.rnd.IntN(20), 10+s.rnd.IntN(30), s.rnd.IntN(4), s.pick("200ms", "300ms")))
		settings = append(settings, "breaker: {window: "+s.pick("1s", "10s")+"}",
			"hedge: {enabled: "+s.pick("true", "false")+"}", "retry: {max: "+s.pick("0", "1")+"}")
		which := s.rnd.IntN(len(s.sims))
		ssp := at(name, s.sims[which], append(settings, s.how[which]())...)
		if which < 2 && s.rnd.IntN(2) == 0 { // a second endpoint, which comes and goes
			ssp = strings.Replace(ssp, `"]`, `", "`+s.sims[1-which].URL()+`"]`, 1)
		}
		all.ssps = append(all.ssps, ssp)
		names = append(names, name)
	}
	list := strings.Join(names, ", ")
	all.routes = []string{to("x", "a"), to("w", list, "mode: waterfall"), to("p", list, "mode: parallel-first")}
	all.more = "deadline: {default: 1m, max: " + s.pick("60s", "61s") + "}"
	return all
}

func (s *storm) pick(of ...string) string { return of[s.rnd.IntN(len(of))] }

// load records which SSPs a configuration has that may soon be in force.
func (s *storm) load(c setup) *config.Config {
	cfg := c.load(s.t)
	var all, overTLS []string
	for i := range cfg.SSPs {
		ssp := &cfg.SSPs[i]
		all = append(all, ssp.Name)
		if strings.HasPrefix(ssp.Endpoints[0].URL, "https:") {
			overTLS = append(overTLS, ssp.Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ssps[cfg.Hash()] = sspNames{strings.Join(all, " "), strings.Join(overTLS, " ")}
	return cfg
}

// version returns the SSPs of a configuration that may be in force.
func (s *storm) version(hash string) sspNames {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, known := s.ssps[hash]
	testsupport.True(s.t, known, "configuration %s is in force, which was never loaded", hash)
	return names
}

var (
	dialSeries = regexp.MustCompile(`(?m)^adbuffer_tls_handshake_errors_total\{reason="alpn",ssp="(\w+)"\}`)
	poolSeries = regexp.MustCompile(`(?m)^adbuffer_pool_connections_limit\{ssp="(\w+)"\}`)
	sspSeries  = regexp.MustCompile(`(?m)^adbuffer_concurrency_limit\{ssp="(\w+)"\}`)
	hashSeries = regexp.MustCompile(`(?m)^adbuffer_config_info\{hash="(\w+)"\}`)
)

// look checks the views of monitoring and of an operator at one moment.
func (s *storm) look(v *service) {
	m := v.admin("/metrics")
	want := s.version(hashSeries.FindStringSubmatch(m)[1])
	for _, c := range []struct {
		series *regexp.Regexp
		want   string
	}{{poolSeries, want.all}, {sspSeries, want.all}, {dialSeries, want.overTLS}} {
		var names []string
		for _, found := range c.series.FindAllStringSubmatch(m, -1) {
			names = append(names, found[1])
		}
		testsupport.Equal(s.t, strings.Join(names, " "), c.want, "/metrics has %[3]v of SSPs %[1]q beside a configuration with %[2]q", c.series)
	}
	var shown struct {
		Service struct {
			Hash string `json:"config_hash"`
		} `json:"service"`
		Pools []struct {
			SSP string `json:"ssp"`
		} `json:"pools"`
	}
	testsupport.NoError(s.t, json.Unmarshal([]byte(v.admin("/pools")), &shown))
	var names []string
	for _, p := range shown.Pools {
		names = append(names, p.SSP)
	}
	testsupport.Equal(s.t, strings.Join(names, " "), s.version(shown.Service.Hash).all, "/pools has SSPs %q beside a configuration with %q")
}

// series are the names of all series, without their values.
func series(metrics string) []string {
	names := map[string]bool{}
	for line := range strings.Lines(metrics) {
		if name, _, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "adbuffer_config_info") {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func TestReloadsUnderTrafficFailNoRequestAndLeakNothing(t *testing.T) {
	testsupport.Long(t)
	s := &storm{t: t, rnd: rand.New(rand.NewPCG(1, 2)), ssps: map[string]sspNames{}, ca: filepath.Join(t.TempDir(), "ca.pem")}
	secure, authority := sim(t, sspsim.Options{Protocol: sspsim.TLSAuto}), filepath.Join(t.TempDir(), "good.pem")
	write(t, authority, secure.CA().PEM())
	s.sims = []*sspsim.SSP{sim(t, sspsim.Options{}), sim(t, sspsim.Options{}), sim(t, sspsim.Options{Protocol: sspsim.H2C}), secure}
	http1 := func() string { return "protocol: " + s.pick("http1", "http1-pipelined", "auto") }
	s.how = []func() string{http1, http1, func() string { return "protocol: h2c" }, func() string {
		return "protocol: " + s.pick("http1", "http2", "auto") + ", tls: {ca_file: \"" + authority + "\"}"
	}}
	first := s.next()
	first.ssps = append(first.ssps, at("e", s.sims[0]))
	firstCfg := s.load(first)
	v := runAlone(t, first)
	atFirst := series(v.admin("/metrics"))

	var stop atomic.Bool
	var traffic sync.WaitGroup
	var sent, failed atomic.Int64
	for i := range 6 {
		traffic.Go(func() {
			for n := i; !stop.Load(); n++ {
				time.Sleep(10 * time.Millisecond) // without it the clients would take the CPU that the reloads need
				path, body := []string{"/x", "/w", "/p"}[n%3], ""
				if n%2 == 0 {
					body = strings.Repeat("x", n%3000)
				}
				a := v.send("POST", path, body)
				if sent.Add(1); a.status != 200 || !strings.HasPrefix(a.source, "ssp/") {
					if failed.Add(1) < 5 {
						t.Errorf("%s got %+v", path, a)
					}
				}
			}
		})
	}
	traffic.Go(func() {
		for ; !stop.Load(); time.Sleep(50 * time.Millisecond) {
			s.look(v)
		}
	})
	for n := range 30 {
		c := s.next()
		switch n % 20 {
		case 9: // a file turns bad after it was checked
			write(t, s.ca, secure.CA().PEM())
			c.ssps = append(c.ssps, at("e", secure, "tls: {ca_file: \""+s.ca+"\"}"))
			cfg := c.load(t)
			write(t, s.ca, []byte("nonsense"))
			if _, err := v.app.versions.DryRun(cfg); err == nil {
				t.Error("a dry run accepted a configuration with a broken file")
			}
			_, err := v.app.Reload(t.Context(), cfg, new(reload.Trial))
			testsupport.True(t, err != nil, "a configuration with a broken file was accepted")
		case 19:
			c.log = "format: console"
			cfg := c.load(t)
			if d, err := v.app.versions.DryRun(cfg); err != nil || d.Verdict != reload.NeedsRestart {
				t.Errorf("the dry run of a configuration that needs a restart says %+v, %v", d, err)
			}
			_, err := v.app.Reload(t.Context(), cfg, new(reload.Trial))
			testsupport.True(t, err != nil, "a configuration that needs a restart was accepted")
		default:
			cfg := s.load(c)
			dry, errDry := v.app.versions.DryRun(cfg)
			res, err := v.app.Reload(t.Context(), cfg, new(reload.Trial))
			if err != nil || errDry != nil {
				t.Errorf("reload %d: %v; the dry run: %v", n, err, errDry)
			} else if !slices.Equal(res.Changes, dry.Changes) {
				t.Errorf("reload %d changes %v, and the dry run said %v", n, res.Changes, dry.Changes)
			}
		}
		for mark := sent.Load() + 10; sent.Load() < mark && failed.Load() == 0; {
			time.Sleep(time.Millisecond)
		}
	}
	stop.Store(true)
	traffic.Wait()
	t.Logf("%d requests", sent.Load())

	if _, err := v.app.Reload(t.Context(), firstCfg, new(reload.Trial)); err != nil {
		t.Fatal(err)
	}
	v.drained()
	if now := series(v.admin("/metrics")); !slices.Equal(now, atFirst) {
		t.Errorf("%d series were exported at first, %d are now: %s", len(atFirst), len(now), difference(atFirst, now))
	}
	pools := len(v.app.versions.Current().Pools)
	v.await("one janitor for each pool", func() bool { return testsupport.Goroutines("pool.(*janitor).run") == pools })
	v.await("only connections of the current pools", func() bool {
		var open, atSSPs int64
		for _, p := range v.app.versions.Current().Pools {
			snap := p.Snapshot()
			for i := range snap.Idle {
				open += int64(snap.Idle[i] + snap.Active[i] + snap.Draining[i])
			}
		}
		for _, one := range s.sims {
			atSSPs += one.Counters().OpenConnections
		}
		return open == atSSPs
	})
	for _, one := range s.sims {
		c := one.Counters()
		testsupport.True(t, c.BadRequests == 0, "an SSP got %d malformed requests: %s", c.BadRequests, c.LastBadRequest)
	}
}

func difference(a, b []string) string {
	var only []string
	for _, s := range a {
		if !slices.Contains(b, s) {
			only = append(only, "-"+s)
		}
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			only = append(only, "+"+s)
		}
	}
	return strings.Join(only[:min(len(only), 20)], " ")
}

// Requests are always in flight. A request that began before the reload must have ended once the
// longest time of a request has passed.
func TestAnOldPoolIsClosedThoughRequestsNeverPause(t *testing.T) {
	g := newGate()
	a, b := sim(t, sspsim.Options{OnRequest: g.hold}), sim(t, sspsim.Options{})
	s := setup{
		ssps: []string{at("a", a), at("b", b)}, routes: []string{to("x", "a"), to("y", "b")},
		more: "deadline: {default: 500ms, max: 500ms}", read: "1s",
	}
	v := run(t, s)
	v.want("/y", "b")
	c := sim(t, sspsim.Options{})
	s.ssps[1] = at("b", c)
	v.reload(s)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				v.get("/x") // until its deadline
			}
		})
	}
	v.drained()
	v.await("requests continue", func() bool { return v.app.proxy.InFlight() > 0 })
	stop.Store(true)
	close(g.open)
	wg.Wait()
	wantNoConnections(t, b)
}
