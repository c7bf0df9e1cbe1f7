package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// vastVersions are the versions that the empty document can be written in.
var vastVersions = []string{"2.0", "3.0", "4.0", "4.1", "4.2", "4.3"}

func checkRoutes(cfg *Config, r *report) {
	if len(cfg.Routes) == 0 {
		r.addMissing("routes", "must have at least one route")
	}
	known := map[string]bool{}
	for i := range cfg.SSPs {
		known[cfg.SSPs[i].Name] = true
	}
	if known[""] {
		known = nil // a route may mean the SSP whose name is missing or invalid
	}
	names := map[string]string{}
	for i := range cfg.Routes {
		route, path := &cfg.Routes[i], at("routes", i)
		checkName(route.Name, path, names, r)
		if route.Name == "none" {
			r.add(join(path, "name"), route.Name, "must not be none, the metrics' word for requests that match no route")
		}
		checkMatch(&route.Match, join(path, "match"), r)
		if health := cfg.Server.HealthPath; health != "" && route.Match.Path == health {
			r.add(join(path, "match.path"), health, "must differ from server.health_path, which comes first", "server.health_path")
		}
		if !slices.Contains(vastVersions, route.VASTVersion) {
			r.add(join(path, "vast_version"), route.VASTVersion, "must be one of "+strings.Join(vastVersions, ", "))
		}
		checkRouteSSPs(route, known, path, r)
		checkMirror(route, known, join(path, "mirror.ssp"), r)
	}
}

func checkMirror(route *Route, known map[string]bool, path string, r *report) {
	name := route.Mirror.SSP
	switch {
	case name == "":
	case !known[name] && len(known) > 0:
		r.add(path, name, unknownSSP(name, known))
	case slices.ContainsFunc(route.SSPs, func(leg RouteSSP) bool { return leg.Name == name }):
		r.add(path, name, "must not be one of the route's ssps, because the copies would add to its load; define another SSP for them")
	}
}

// unknownSSP returns the rule for a name that is not in ssps.
func unknownSSP(name string, known map[string]bool) string {
	rule := "must be the name of one of ssps"
	if best := closest(name, maps.Keys(known)); best != "" {
		rule += "; did you mean " + best + "?"
	}
	return rule
}

// checkRouteSSPs checks a route's SSPs against each other, its mode and the known names. known is
// nil if the names cannot be determined.
func checkRouteSSPs(route *Route, known map[string]bool, path string, r *report) {
	list, mode := join(path, "ssps"), join(path, "mode")
	if len(route.SSPs) == 0 {
		r.addMissing(list, "must have at least one SSP")
		return
	}
	seen := map[string]string{}
	weights, primaries := 0, 0
	for i, leg := range route.SSPs {
		p := at(list, i)
		name := join(p, "name")
		switch first, twice := seen[leg.Name]; {
		case leg.Name == "":
			r.addMissing(name, "must be set")
		case !known[leg.Name] && len(known) > 0:
			r.add(name, leg.Name, unknownSSP(leg.Name, known))
		case twice:
			r.add(name, leg.Name, "must be in the route once; it is "+first+" too")
		}
		seen[leg.Name] = p
		if leg.Weight != 0 && route.Mode != ModeSplit {
			r.add(join(p, "weight"), leg.Weight, "is for mode split only", mode)
		}
		if leg.Timeout != 0 && route.Mode != ModeWaterfall {
			r.add(join(p, "timeout"), formatDuration(leg.Timeout), "is for mode waterfall only", mode)
		}
		if leg.Secondary && route.Mode != ModeParallelAll {
			r.add(join(p, "secondary"), leg.Secondary, "is for mode parallel-all only", mode)
		}
		weights += max(0, leg.Weight)
		if !leg.Secondary {
			primaries++
		}
	}
	if route.Mode == ModeSplit && weights == 0 {
		r.addMissing(list, "must have a weight above 0 for mode split")
	}
	if route.Mode == ModeParallelAll && primaries == 0 {
		r.addMissing(list, "must have an SSP that is not secondary")
	}
}

func checkMatch(m *Match, path string, r *report) {
	if p := join(path, "path"); m.Path == "" {
		r.addMissing(p, `must be set; "/*" is every path`)
	} else if rule := pathRule(m.Path); rule != "" {
		r.add(p, m.Path, rule)
	}
	if m.Host != "" {
		if !validHostOnly(strings.TrimPrefix(m.Host, "*.")) {
			r.add(join(path, "host"), m.Host, `must be a host name without a port, or "*.example.com" for every name below it`)
		}
	}
	for i, c := range m.Query {
		p := at(join(path, "query"), i)
		if c.Name == "" {
			r.addMissing(join(p, "name"), "must be set")
		} else if !validQueryPart(c.Name) || strings.Contains(c.Name, "=") {
			r.add(join(p, "name"), c.Name, "must be as it is in a URL: printable ASCII without &, = and #")
		}
		if c.Value != nil && !validQueryPart(*c.Value) {
			r.add(join(p, "value"), *c.Value, "must be as it is in a URL: printable ASCII without & and #")
		}
	}
	for i, c := range m.Header {
		p := at(join(path, "header"), i)
		if c.Name == "" {
			r.addMissing(join(p, "name"), "must be set")
		} else if strings.EqualFold(c.Name, "host") {
			r.add(join(p, "name"), c.Name, "is what match.host matches")
		} else if rule := tokenRule(c.Name); rule != "" {
			r.add(join(p, "name"), c.Name, rule)
		}
	}
}

// pathRule returns the rule that a path to match breaks, or "". Paths are compared
// byte by byte as clients send them.
func pathRule(path string) string {
	const maxPath = 1024
	if !strings.HasPrefix(path, "/") {
		return "must begin with /"
	}
	if len(path) > maxPath {
		return fmt.Sprintf("must not be longer than %d bytes", maxPath)
	}
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || c == '?' || c == '#' {
			return "must be a path as it is in a URL: printable ASCII without ? and #"
		}
	}
	exact := strings.TrimSuffix(path, "/*")
	if strings.Contains(exact, "*") {
		return `may have * only as "/*" at its end`
	}
	for segment := range strings.SplitSeq(exact, "/") {
		if segment == "." || segment == ".." {
			return "must not hold . or .. as a part; such requests are refused"
		}
	}
	return ""
}

func validQueryPart(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '&' || c == '#' {
			return false
		}
	}
	return true
}
