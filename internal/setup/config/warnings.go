package config

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"adbuffer/internal/request/route"
	"adbuffer/internal/wire/sample"
	"adbuffer/internal/wire/syntax"
)

// Warning is about a setting that is valid but probably a mistake.
type Warning struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// String is one line: path and text.
func (w Warning) String() string { return w.Path + ": " + w.Text }

const (
	// commonServerIdle is the shortest idle timeout among widely used servers and
	// load balancers (60 s at AWS ALB, 65 to 75 s at nginx).
	commonServerIdle = 60 * time.Second
	// goodTokenBytes is the shortest length at which a random token of letters and digits
	// cannot be guessed.
	goodTokenBytes = 16
)

// warnings lists the warnings about a valid config on machine m, in the order of the keys.
func warnings(cfg *Config, m machine, isSet func(path string) bool) []Warning {
	w := &warner{machine: m, isSet: isSet}
	w.server(cfg)
	w.certificate("server.tls.cert_file", cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile, "clients")
	w.certificate("admin.tls.cert_file", cfg.Admin.TLS.CertFile, cfg.Admin.TLS.KeyFile, "its clients")
	w.fleet(cfg)
	for i := range cfg.SSPs {
		w.ssp(cfg, &cfg.SSPs[i], at("ssps", i))
	}
	for i := range cfg.Routes {
		w.route(cfg, i)
	}
	return w.list
}

// sharedWarnings merges the warnings that several SSPs share into one. A warning about a value of
// ssp_defaults names the key in ssp_defaults.
func sharedWarnings(all []Warning, cfg *Config, r *report) (list []Warning) {
	type fault struct{ setting, text string }
	first := map[fault]int{}       // the index in list of a fault's warning
	others := map[fault][]string{} // the names of the other SSPs with the fault
	for _, w := range all {
		element, setting, _ := strings.Cut(w.Path, "].")
		number, ofSSP := strings.CutPrefix(element, "ssps[")
		f := fault{setting, w.Text}
		i, err := strconv.Atoi(number)
		if !ofSSP || err != nil || setting == "" {
			list = append(list, w)
		} else if _, known := first[f]; known {
			others[f] = append(others[f], cfg.SSPs[i].Name)
		} else {
			first[f] = len(list)
			list = append(list, Warning{r.origin(w.Path), w.Text})
		}
	}
	for f, names := range others {
		w := &list[first[f]]
		if strings.HasPrefix(w.Path, "ssps[") {
			w.Text += "; the same for " + namesOf(names)
		}
	}
	return list
}

// namesOf lists at most maxNames names.
func namesOf(names []string) string {
	const maxNames = 5
	if len(names) > maxNames {
		return fmt.Sprintf("%s and %d other SSPs", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

type warner struct {
	machine machine
	isSet   func(path string) bool // reports whether the configuration sets the key
	list    []Warning
}

func (w *warner) add(path, format string, args ...any) {
	w.list = append(w.list, Warning{path, fmt.Sprintf(format, args...)})
}

// aboveMax warns of a time limit that deadline.max makes useless.
func (w *warner) aboveMax(path string, limit time.Duration, d *Deadline) {
	if limit > d.Max {
		w.add(path, "%s is above deadline.max, %s, and has no effect", formatDuration(limit), formatDuration(d.Max))
	}
}

func (w *warner) server(cfg *Config) {
	w.inForce(cfg)
	if m := &w.machine; m.cpusFrom != "" && float64(m.procs) > math.Ceil(m.cpus) {
		w.add("server.overload", "the cgroup %s allows %v CPUs, but GOMAXPROCS is %d, since Go reads only the limit of the process's own cgroup; the kernel will throttle adbuffer: set GOMAXPROCS to %v",
			m.cpusFrom, m.cpus, m.procs, math.Ceil(m.cpus))
	}
	response := 0
	for i := range cfg.SSPs {
		response = max(response, cfg.SSPs[i].MaxResponseBytes)
	}
	if need, limit := cfg.Server.MaxBodyBytes+response, w.machine.maxBufferedBytes(cfg).Value; need > limit {
		w.add("server.max_buffered_bytes", "%d bytes is less than one request and its response may hold, %d bytes; adbuffer would refuse the largest as overloaded",
			limit, need)
	}
	if s := cfg.Admin.Sample; s.Requests > 0 && s.MaxBody() < sample.MaxBody && (w.isSet("admin.sample.max_bytes") || w.isSet("admin.sample.max_age")) {
		w.add("admin.sample.max_bytes", "a minute of admin.sample.max_age has so small a part of %d bytes that bodies over %d bytes are not kept; with more, bodies of up to %d bytes are", s.MaxBytes, s.MaxBody(), sample.MaxBody)
	}
	if s, limit := cfg.Admin.Sample, w.machine.maxBufferedBytes(cfg).Value; s.Requests > 0 && s.MaxBytes > limit/2 {
		w.add("admin.sample.max_bytes", "%d bytes are more than half of server.max_buffered_bytes, of which %d are in force; the sample would leave too little for requests and responses", s.MaxBytes, limit)
	}
	for i, prefix := range cfg.Server.TrustedProxies {
		if prefix.Bits() == 0 {
			w.add(at("server.trusted_proxies", i), "%s lets every client claim any address", prefix)
		}
	}
	if network, _ := cfg.Server.Listen.Split(); network == "tcp" && cfg.Server.ProxyProtocol && len(cfg.Server.TrustedProxies) == 0 {
		w.add("server.proxy_protocol", "has no effect, since server.trusted_proxies is empty; a PROXY header from any peer is a bad request")
	}
	if id := cfg.Server.RequestID; id.ToSSP && id.Header == "" {
		w.add("server.request_id.to_ssp", "has no effect, since header is empty")
	}
	if n := len(cfg.Admin.Token.Reveal()); n > 0 && n < goodTokenBytes {
		w.add("admin.token_file", "the token has %d bytes and can be guessed; %d random bytes cannot", n, goodTokenBytes)
	}
	if cfg.Admin.Token.Empty() && cfg.Admin.ClientCAFile == "" && !isLoopback(cfg.Admin.Listen) {
		w.add("admin.listen", "%s is reachable from other machines and there is no admin.token_file and no admin.client_ca_file; all but /metrics, /healthz and /readyz will respond 403", cfg.Admin.Listen)
	}
	if _, port, err := net.SplitHostPort(string(cfg.Server.Listen)); cfg.Server.ReusePort && err == nil && port == "0" {
		w.add("server.reuse_port", "has no effect, since server.listen has port 0, a different port in each process; no process can take over")
	}
	if cfg.Server.H2C && cfg.Server.TLS.CertFile != "" {
		w.add("server.h2c", "is not used with server.tls; over TLS, clients choose HTTP/2 by ALPN")
	}
	if a := &cfg.Log.Access; a.Slow > 0 && !a.Enabled {
		w.add("log.access.slow", "has no effect, since log.access.enabled is false")
	}
	if d := &cfg.Deadline; d.Default < d.Reserve+d.MinBudget {
		w.add("deadline.default", "%s is below reserve + min_budget, %s; requests without a deadline of their own are never sent",
			formatDuration(d.Default), formatDuration(d.Reserve+d.MinBudget))
	}
}

// isLoopback reports whether only this machine can reach the address.
func isLoopback(a Address) bool {
	_, address := a.Split()
	return syntax.IsLoopbackHost(address[:strings.LastIndexByte(address, ':')])
}

func (r *Route) uses(ssp string) bool {
	return r.Mirror.SSP == ssp || slices.ContainsFunc(r.SSPs, func(leg RouteSSP) bool { return leg.Name == ssp })
}

// ssp returns the SSP of this name, which a route names.
func (cfg *Config) ssp(name string) *SSP {
	return &cfg.SSPs[slices.IndexFunc(cfg.SSPs, func(s SSP) bool { return s.Name == name })]
}

func (w *warner) route(cfg *Config, i int) {
	routes := cfg.Routes
	rt, path := &routes[i], at("routes", i)
	if rt.Mode == route.Single && !rt.ClientChoice {
		always := slices.IndexFunc(rt.SSPs, func(leg RouteSSP) bool { return len(leg.When) == 0 && len(cfg.ssp(leg.Name).When) == 0 })
		if always >= 0 && always < len(rt.SSPs)-1 {
			w.add(join(path, "ssps"), "mode single asks no SSP after %s; client_choice would let clients choose another SSP", rt.SSPs[always].Name)
		}
	}
	for j, leg := range rt.SSPs {
		w.aboveMax(join(at(join(path, "ssps"), j), "timeout"), leg.Timeout, &cfg.Deadline)
		if m := cfg.ssp(leg.Name).TmaxMargin; leg.Timeout > 0 && m >= leg.Timeout {
			w.add(join(at(join(path, "ssps"), j), "timeout"), "%s is not above tmax_margin of %s, %s; requests would tell the SSP a tmax of 1", formatDuration(leg.Timeout), leg.Name, formatDuration(m))
		}
		if rt.Mode == route.Split && leg.Weight == 0 && !rt.ClientChoice {
			w.add(join(at(join(path, "ssps"), j), "weight"), "is 0, so %s gets no requests; client_choice would let clients choose it", leg.Name)
		}
	}
	for j := range i {
		if routes[j].Match.covers(&rt.Match) {
			w.add(join(path, "match"), "is never reached: route %s matches all of its requests first", routes[j].Name)
			return
		}
	}
}

// covers reports whether m certainly matches every request that other matches.
func (m *Match) covers(other *Match) bool {
	prefix, isPrefix := strings.CutSuffix(m.Path, "*")
	if m.Path != other.Path && (!isPrefix || !strings.HasPrefix(other.Path, prefix)) {
		return false
	}
	if m.Host != "" && m.Host != other.Host || len(m.OpenRTB) > 0 || m.Holdback > 0 {
		return false
	}
	return coverAll(m.Query, other.Query, false) && coverAll(m.Header, other.Header, true)
}

// coverAll reports whether other includes every condition of conditions.
func coverAll(conditions, other []route.Condition, anyCase bool) bool {
	for _, c := range conditions {
		if !slices.ContainsFunc(other, func(o route.Condition) bool {
			same := o.Name == c.Name || anyCase && strings.EqualFold(o.Name, c.Name)
			return same && (c.Value == nil || o.Value != nil && *o.Value == *c.Value)
		}) {
			return false
		}
	}
	return true
}
