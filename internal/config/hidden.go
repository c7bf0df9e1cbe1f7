package config

import (
	"slices"
	"strings"
)

// Hidden replaces a possible secret wherever a configuration or a part of it is shown. A
// configuration that contains it is refused.
const Hidden = "(hidden)"

// Possible secrets are:
//
//   - Every value in the query of an endpoint (SSPs call their keys pub, seat or id).
//   - A user and a password in any URL.
//   - The value of a field in headers.set, except plainFields.
//   - The value of a condition with a name such as token or key.
//
// Tokens, passwords and keys in files are never shown. Paths and hosts always are.

// HideURL returns a URL with its query values, user, password and fragment hidden. Any
// text with "://" counts as a URL.
func HideURL(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if !ok {
		return u
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path := rest, ""
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		authority, path = rest[:slash], rest[slash:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = Hidden + authority[at:]
	}
	u = scheme + "://" + authority + path
	if hasQuery {
		u += "?" + HideQuery(query)
	}
	if hasFragment && fragment != "" {
		u += "#" + Hidden
	}
	return u
}

// HideQuery returns a query with its values hidden. A parameter without a value is hidden
// whole, because it may be a key.
func HideQuery(query string) string {
	params := strings.Split(query, "&")
	for i, param := range params {
		name, value, _ := strings.Cut(param, "=")
		switch {
		case param == "":
		case strings.Trim(value, "=") == "": // "name=" looks like the end of base64
			params[i] = Hidden
		default:
			params[i] = name + "=" + Hidden
		}
	}
	return strings.Join(params, "&")
}

// plainFields are the fields of headers.set whose values are shown, in lower case.
var plainFields = []string{"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "content-type", "priority", "user-agent", "via", "x-openrtb-version"}

// HideField returns the value of a field in headers.set as it is shown.
func HideField(name, value string) string {
	if value == "" || slices.Contains(plainFields, strings.ToLower(name)) {
		return value
	}
	return Hidden
}

// NamesSecret reports whether a header field or query parameter of this name
// likely holds a secret. In doubt it returns true.
func NamesSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "cookie", "key", "token", "secret", "pass", "sig", "credential", "session"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// hide returns a copy of c with possible secrets hidden.
func (c *Config) hide() *Config {
	h := *c
	h.Tracing.Endpoint = HideURL(h.Tracing.Endpoint)
	h.SSPs = slices.Clone(c.SSPs)
	for i := range h.SSPs {
		s := &h.SSPs[i]
		s.Endpoints = slices.Clone(s.Endpoints)
		for j := range s.Endpoints {
			s.Endpoints[j].URL = HideURL(s.Endpoints[j].URL)
		}
		s.Headers.Set = slices.Clone(s.Headers.Set)
		for j := range s.Headers.Set {
			f := &s.Headers.Set[j]
			f.Value = HideField(f.Name, f.Value)
		}
	}
	h.Routes = slices.Clone(c.Routes)
	for i := range h.Routes {
		m := &h.Routes[i].Match
		m.Query, m.Header = hideConditions(m.Query), hideConditions(m.Header)
	}
	return &h
}

// ShownURLs returns the URLs of the endpoints as they may be shown.
func (s *SSP) ShownURLs() []string {
	hidden := make([]string, len(s.Endpoints))
	for i, e := range s.Endpoints {
		hidden[i] = HideURL(e.URL)
	}
	return hidden
}

func hideConditions(conditions []Condition) []Condition {
	hidden := slices.Clone(conditions)
	for i := range hidden {
		if c := &hidden[i]; c.Value != nil && *c.Value != "" && NamesSecret(c.Name) {
			value := Hidden
			c.Value = &value
		}
	}
	return hidden
}
