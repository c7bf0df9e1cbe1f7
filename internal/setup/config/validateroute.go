package config

import (
	"maps"
	"slices"
	"strings"

	"adbuffer/internal/request/route"
)

func checkRoutes(cfg *Config, r *report) {
	known := map[string]bool{}
	for i := range cfg.SSPs {
		known[cfg.SSPs[i].Name] = true
	}
	if known[""] {
		known = nil // an unknown name in a route may be that of the SSP whose own name is missing or invalid
	}
	for i := range cfg.Routes {
		rt, path := &cfg.Routes[i], at("routes", i)
		if rt.Name == "none" {
			r.add(join(path, "name"), rt.Name, "must not be none, the metrics' word for requests that match no route")
		}
		checkMatch(&rt.Match, join(path, "match"), r)
		if health := cfg.Server.HealthPath; health != "" && rt.Match.Path == health {
			r.add(join(path, "match.path"), health, "must differ from server.health_path, which comes first", "server.health_path")
		}
		checkConditions(rt.Match.OpenRTB, join(path, "match.openrtb"), r)
		checkRouteSSPs(rt, known, path, r)
		if rt.Merge != "" && rt.Mode != route.ParallelAll {
			r.add(join(path, "merge"), rt.Merge, "is for mode parallel-all only", join(path, "mode"))
		}
		if status := join(path, "on_error_status"); rt.OnError != OnErrorNoAd && !slices.Equal(rt.OnErrorStatus, defaultMasked) {
			r.add(status, nil, "needs on_error: no_ad beside it", join(path, "on_error"))
		}
		checkMirror(rt, known, join(path, "mirror.ssp"), r)
		checkCORS(&rt.CORS, join(path, "cors"), r)
	}
}

// defaultMasked is the default of on_error_status.
var defaultMasked = []string{"4xx", "5xx"}

func checkMirror(rt *Route, known map[string]bool, path string, r *report) {
	name := rt.Mirror.SSP
	switch {
	case name == "":
	case !known[name] && len(known) > 0:
		r.add(path, name, unknownSSP(name, known))
	case slices.ContainsFunc(rt.SSPs, func(leg RouteSSP) bool { return leg.Name == name }):
		r.add(path, name, "must not be one of the route's ssps, because the copies would add to its load; define another SSP for them")
	}
}

func checkCORS(c *route.CORS, path string, r *report) {
	if c.Credentials && len(c.Origins) == 0 {
		r.add(join(path, "credentials"), true, "needs origins beside it")
	}
	for i, origin := range c.Origins {
		p := at(join(path, "origins"), i)
		switch {
		case origin == "*" && len(c.Origins) > 1:
			r.add(p, origin, "must be the only origin, since it allows all")
		case (origin == "*" || origin == "null") && c.Credentials:
			r.add(p, origin, "must not be allowed with credentials, since pages of any site can have this origin; list origins such as https://www.example.com", join(path, "credentials"))
		}
	}
}

// unknownSSP returns the rule for a name that no SSP has.
func unknownSSP(name string, known map[string]bool) string {
	rule := "must be the name of one of ssps"
	if best := closest(name, maps.Keys(known)); best != "" {
		rule += "; did you mean " + best + "?"
	}
	return rule
}

// checkRouteSSPs checks a route's list of SSPs against the route's mode and the known names. known is nil
// if not all names of SSPs could be determined.
func checkRouteSSPs(rt *Route, known map[string]bool, path string, r *report) {
	list, mode := join(path, "ssps"), join(path, "mode")
	weights, primaries := 0, 0
	for i, leg := range rt.SSPs {
		p := at(list, i)
		if leg.Name != "" && !known[leg.Name] && len(known) > 0 {
			r.add(join(p, "name"), leg.Name, unknownSSP(leg.Name, known))
		}
		if leg.Weight != 0 && rt.Mode != route.Split {
			r.add(join(p, "weight"), leg.Weight, "is for mode split only", mode)
		}
		if leg.Timeout != 0 && rt.Mode != route.Waterfall {
			r.add(join(p, "timeout"), formatDuration(leg.Timeout), "is for mode waterfall only", mode)
		}
		if leg.Secondary && rt.Mode != route.ParallelAll {
			r.add(join(p, "secondary"), leg.Secondary, "is for mode parallel-all only", mode)
		}
		checkConditions(leg.When, join(p, "when"), r)
		weights += max(0, leg.Weight)
		if !leg.Secondary {
			primaries++
		}
	}
	if rt.Mode == route.Split && weights == 0 {
		r.add(list, nil, "must have a weight above 0 for mode split")
	}
	if rt.Mode == route.ParallelAll && primaries == 0 {
		r.add(list, nil, "must have an SSP that is not secondary")
	}
}

func checkMatch(m *Match, path string, r *report) {
	for i, c := range m.Query {
		p := at(join(path, "query"), i)
		if !isQueryPart(c.Name) || strings.Contains(c.Name, "=") {
			r.add(join(p, "name"), c.Name, "must be as it is in a URL: printable ASCII without &, = and #")
		}
		if c.Value != nil && !isQueryPart(*c.Value) {
			r.add(join(p, "value"), *c.Value, "must be as it is in a URL: printable ASCII without & and #")
		}
	}
	for i, c := range m.Header {
		p := join(at(join(path, "header"), i), "name")
		if strings.EqualFold(c.Name, "host") {
			r.add(p, c.Name, "is what match.host matches")
		} else if rule := tokenRule(c.Name); rule != "" {
			r.add(p, c.Name, rule)
		}
	}
}

// checkConditions checks conditions on a body or on the user's consent.
func checkConditions(all []BodyCondition, path string, r *report) {
	for i, c := range all {
		p, set := at(path, i), 0
		for _, isSet := range []bool{c.In != nil, c.NotIn != nil, c.Exists != nil} {
			if isSet {
				set++
			}
		}
		switch {
		case c.TCF != nil && (c.Path != "" || set > 0):
			r.add(p, nil, "must have either path or tcf", join(p, "path"), join(p, "tcf"))
		case c.TCF != nil || r.isBad(join(p, "tcf")):
		case c.Path == "":
			r.add(join(p, "path"), nil, "must be set; a condition on the user's consent has tcf in its place")
		case set != 1:
			r.add(p, nil, "must have exactly one of in, not_in and exists", join(p, "in"), join(p, "not_in"), join(p, "exists"))
		}
	}
}

func isQueryPart(s string) bool { return isGraphic(s) && !strings.ContainsAny(s, "&#") }
