package route

import (
	"bytes"
	"math/rand/v2"
	"strings"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/syntax"
)

// Match holds the conditions for a request; all of them must be true. All comparisons are on raw
// bytes: nothing is decoded.
type Match struct {
	// Path is exact, or a prefix if it ends in "/*": "/a/*" matches "/a/" and "/a/b", not "/a".
	Path string
	// Host is lower case, without port and without a final dot: exact, or "*.example.com" for any
	// name below it; empty for any.
	Host   string
	Query  []Condition
	Header []Condition
	// OpenRTB are conditions on the body.
	OpenRTB []openrtb.Condition
	// Holdback is the share, from 0 to 1, of the matching requests for which this route is passed over, so that the search
	// goes on with the next route.
	Holdback float64
}

// Condition requires a query parameter or a header field with this name and value. A nil Value means any value. Package
// config says what the tags mean.
type Condition struct {
	Name  string  `yaml:"name" jsonschema:"required" empty:"must be set"`
	Value *string `yaml:"value,omitempty" hide:"condition"`

	param int `yaml:"-"` // the index of Name in Table.params; only for a condition on the query
}

// Find returns the first route that matches, or nil. If the client has chosen an SSP by the path, and the route allows
// that, name is the name of the SSP. If the next route has conditions on the body, and the body has not been examined,
// Find returns nil and sets s.NeedsBody: the caller calls Examine, and then Find again.
func (t *Table) Find(f *header.RequestFields, s *Search) (rt *Route, name []byte) {
	s.NeedsBody = false
	if hasDotDot(f.Path) {
		return nil, nil
	}
	var params foundParams
	for ; s.next < len(t.Routes); s.next++ {
		rt := t.Routes[s.next]
		name, ok := rt.matches(f, &params, t.params)
		if !ok {
			continue
		}
		if len(rt.conditions) > 0 && !s.examined {
			s.NeedsBody = true
			return nil, nil
		}
		if s.facts.HoldAll(rt.conditions) && !rt.holdsBack(s) {
			return rt, name
		}
	}
	return nil, nil
}

// holdsBack decides, by Holdback and at random unless the request is being explained, whether a matching request goes on to the next route.
func (rt *Route) holdsBack(s *Search) bool {
	switch {
	case rt.Match.Holdback == 0:
		return false
	case s.Explaining:
		s.HeldBack--
		return s.HeldBack >= 0
	}
	return rand.Float64() < rt.Match.Holdback
}

// matches reports whether all conditions hold, without those on the body. name is the SSP that the client chose by the
// path, or nil. names are the query parameters that params finds when a condition needs them.
func (rt *Route) matches(f *header.RequestFields, params *foundParams, names []string) (name []byte, ok bool) {
	name, ok = rt.matchesURL(f, params, names)
	if !ok {
		return nil, false
	}
	for i := range rt.Match.Header {
		if !rt.Match.Header[i].inFields(f) {
			return nil, false
		}
	}
	return name, true
}

// matchesURL reports whether the conditions on path, host and query hold.
func (rt *Route) matchesURL(f *header.RequestFields, params *foundParams, names []string) (name []byte, ok bool) {
	m := &rt.Match
	name, ok = m.matchPath(f.Path, rt.ClientChoice)
	if !ok || !m.matchHost(f.Host()) {
		return nil, false
	}
	if len(m.Query) > 0 {
		params.find(f.Query, names)
	}
	for i := range m.Query {
		if !m.Query[i].inQuery(params) {
			return nil, false
		}
	}
	return name, true
}

// matchPath also accepts P/{name} for an exact path P if clients may choose.
func (m *Match) matchPath(path []byte, choice bool) (name []byte, ok bool) {
	if prefix, isPrefix := strings.CutSuffix(m.Path, "*"); isPrefix && strings.HasSuffix(prefix, "/") {
		return nil, len(path) >= len(prefix) && string(path[:len(prefix)]) == prefix
	}
	n := len(m.Path)
	if len(path) < n || string(path[:n]) != m.Path {
		return nil, false
	}
	if len(path) == n {
		return nil, true
	}
	name = path[n+1:]
	if !choice || path[n] != '/' || len(name) == 0 || bytes.IndexByte(name, '/') >= 0 {
		return nil, false
	}
	return name, true
}

func (m *Match) matchHost(host []byte) bool {
	if m.Host == "" {
		return true
	}
	if suffix, ok := strings.CutPrefix(m.Host, "*"); ok {
		n := len(host) - len(suffix)
		return n > 0 && syntax.EqualFold(host[n:], suffix)
	}
	return syntax.EqualFold(host, m.Host)
}

func (c *Condition) inQuery(params *foundParams) bool {
	for _, p := range params.all[:params.n] {
		if p.name == c.param && (c.Value == nil || string(p.value) == *c.Value) {
			return true
		}
	}
	return false
}

func (c *Condition) inFields(f *header.RequestFields) bool {
	if c.Value == nil {
		_, ok := f.Lookup(c.Name)
		return ok
	}
	for _, field := range f.Fields() {
		if syntax.EqualFold(field.Name, c.Name) && string(field.Value) == *c.Value {
			return true
		}
	}
	return false
}

// hasDotDot reports whether a segment of the path is "..".
func hasDotDot(path []byte) bool {
	return bytes.Contains(path, []byte("/../")) || bytes.HasSuffix(path, []byte("/.."))
}
