package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
)

func checkSSP(s *SSP, d *Deadline, path string, r *report) {
	switch scheme := checkEndpoints(s, join(path, "endpoints"), r); {
	case s.Protocol == dial.HTTP2 && scheme == "http":
		r.add(join(path, "protocol"), s.Protocol, "needs https endpoints; h2c is HTTP/2 over cleartext")
	case s.Protocol == dial.H2C && scheme == "https":
		r.add(join(path, "protocol"), s.Protocol, "needs http endpoints; http2 is HTTP/2 over TLS")
	}
	s.TLS.check(join(path, "tls"), r)
	longest, from := d.Max-d.Reserve, "deadline.max less deadline.reserve"
	if t := s.Timeouts.Request; t > 0 && t < longest {
		longest, from = t, "timeouts.request"
	}
	if m := s.TmaxMargin; m > 0 && m >= longest {
		r.add(join(path, "tmax_margin"), formatDuration(m), fmt.Sprintf("must be below %s, %s: the SSP would have no time", from, formatDuration(longest)), "deadline.max", "deadline.reserve", join(path, "timeouts.request"))
	}
	checkConditions(s.When, join(path, "when"), r)
	for i, removal := range s.Remove {
		checkConditions(removal.When, join(at(join(path, "remove"), i), "when"), r)
	}
	if n := len(s.Set); n > maxSets {
		r.add(join(path, "set"), n, fmt.Sprintf("must not be more than %d", maxSets))
	}
	for i, set := range s.Set {
		checkSet(set, at(join(path, "set"), i), r)
	}
	if n := len(s.QPS.Shape.Keys); n > shaper.MaxKeys {
		r.add(join(path, "qps.shape.keys"), n, fmt.Sprintf("must not be more than %d", shaper.MaxKeys))
	}
	for i, a := range s.SourceAddresses {
		if a.Zone() != "" || a.IsMulticast() || a.IsUnspecified() || a.Is4In6() {
			r.add(at(join(path, "source_addresses"), i), a, "must be an address of this machine, without a zone; leave the list empty to let the system choose")
		}
	}
	if i := slices.IndexFunc(s.Headers.Set, func(f header.NameValue) bool { return strings.EqualFold(f.Name, "Content-Encoding") }); i >= 0 && s.Compress.Coding != ssp.CodingNone {
		r.add(join(at(join(path, "headers.set"), i), "name"), s.Headers.Set[i].Name, "is set by compress; a body cannot have two codings", join(path, "compress.coding"))
	}
}

// maxSets bounds the time and memory that building an edit takes, which grow with the square of the number of sets.
const maxSets = 100

func checkSet(s Set, path string, r *report) {
	checkConditions(s.When, join(path, "when"), r)
	given := slices.DeleteFunc([]*JSON{s.Value, s.Append, s.Default}, func(v *JSON) bool { return v == nil })
	if len(given) != 1 {
		r.add(path, nil, "must have exactly one of value, append and default", join(path, "value"), join(path, "append"), join(path, "default"))
		return
	}
	depth := strings.Count(s.Path, ".") + 1 + given[0].depth()
	if s.Append != nil {
		depth++
	}
	if depth > openrtb.MaxDepth {
		r.add(path, nil, fmt.Sprintf("makes the body nest %d levels deep; more than %d are not read", depth, openrtb.MaxDepth))
	}
}

// maxEndpoints bounds the metrics: an endpoint has about 45 series.
const maxEndpoints = 256

// checkEndpoints parses the URLs of the endpoints. It returns the scheme that they share, or "" if they
// have errors.
func checkEndpoints(ssp *SSP, path string, r *report) (scheme string) {
	if len(ssp.Endpoints) == 0 {
		return ""
	}
	if n := len(ssp.Endpoints); n > maxEndpoints {
		r.add(path, n, fmt.Sprintf("must not be more than %d", maxEndpoints))
		return ""
	}
	urls := make([]string, len(ssp.Endpoints))
	for i, e := range ssp.Endpoints {
		urls[i] = e.URL
	}
	all, err := exchange.ParseEndpoints(urls)
	ssp.Parsed = all
	if several, ok := err.(interface{ Unwrap() []error }); ok { // ParseEndpoints joins its errors
		for _, err := range several.Unwrap() {
			e, _ := errors.AsType[*exchange.EndpointError](err)
			rule := e.Rule
			if e.SameAs >= 0 {
				rule = "must differ from " + at(path, e.SameAs)
			}
			r.add(at(path, e.At), ssp.Endpoints[e.At].URL, rule, join(at(path, e.At), "url"))
		}
	}
	return all.Scheme
}
