package route

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/header"
)

// lookup is a request to match. target is a raw path with a query.
func lookup(t testing.TB, host, target string, lines ...string) *header.RequestFields {
	t.Helper()
	f := new(header.RequestFields)
	head := "Host: " + host + "\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
	testsupport.NoError(t, f.Scan([]byte(head)))
	path, query, _ := strings.Cut(target, "?")
	f.Path, f.Query = []byte(path), []byte(query)
	return f
}

func value(s string) *string { return &s }

// wantMatches checks which requests match m.
func wantMatches[T any](t *testing.T, m Match, request func(T) *header.RequestFields, yes, no []T) {
	t.Helper()
	table := NewTable([]*Route{{Match: m}})
	for expect, requests := range map[bool][]T{true: yes, false: no} {
		for _, q := range requests {
			r, name := table.Find(request(q), new(Search))
			testsupport.True(t, (r != nil) == expect && name == nil, "%+v: %v matches: %v, chooses %q", m, q, r != nil, name)
		}
	}
}

func TestMatchOnPath(t *testing.T) {
	for _, tt := range []struct {
		path string
		yes  []string
		no   []string
	}{
		{"/fill", []string{"/fill"}, []string{
			"/", "", "/fil", "/fill/", "/fill/openx", "/filled", "//fill", "/./fill", "/x/../fill", "/fill/..", "/fill/../fill",
			"/Fill", "/%66ill", "/fill%2f", "/fill;a", "/fill#", "fill", "/fill\\", "/fill.", "*",
		}},
		{"/", []string{"/"}, []string{"", "//", "/a", "/.", "/.."}},
		{"/a/*", []string{"/a/", "/a/b", "/a/b/c", "/a//", "/a/*", "/a/.", "/a/...", "/a/..b", "/a/b..", "/a/%2e%2e/b"}, []string{
			"/a", "/", "/ab", "/b/", "/A/b", "//a/b", "/a/..", "/a/../b", "/../a/b", "/a/b/..", "/a/..//", "/a/.../..",
		}},
		{"/*", []string{"/", "/a", "//", "/a/b", "/%00", "/..."}, []string{"", "a", "/..", "/../", "/a/..", "/a/../b", "/..././.."}},
		{"/a*", []string{"/a*"}, []string{"/a", "/ab", "/a/"}}, // the pattern does not end at a segment: it is an exact path
	} {
		wantMatches(t, Match{Path: tt.path}, func(path string) *header.RequestFields { return lookup(t, "h", path) }, tt.yes, tt.no)
	}
}

func TestPathNamesTheSSPWhereClientsMayChoose(t *testing.T) {
	for _, tt := range []struct{ path, request, name string }{ // "-": no match; "": no choice
		{"/fill", "/fill", ""},
		{"/fill", "/fill/openx", "openx"},
		{"/fill", "/fill/%6fpenx", "%6fpenx"}, // the route has no SSP of that name
		{"/fill", "/fill/", "-"},
		{"/fill", "/fill//", "-"},
		{"/fill", "/fill//openx", "-"},
		{"/fill", "/fill/openx/", "-"},
		{"/fill", "/fill/openx/b", "-"},
		{"/fill", "/fill/..", "-"},
		{"/fill", "/fill/.", "."},
		{"/fill", "/fillopenx", "-"},
		{"/a/*", "/a/openx", ""},
		{"/a/", "/a/", ""},
		{"/a/", "/a//openx", "openx"},
	} {
		table := NewTable([]*Route{{Match: Match{Path: tt.path}, ClientChoice: true}})
		r, name := table.Find(lookup(t, "h", tt.request), new(Search))
		got := string(name)
		if r == nil {
			got = "-"
		}
		want(t, tt.path+" and "+tt.request, got, tt.name)
	}
}

func TestMatchOnHost(t *testing.T) {
	for _, tt := range []struct {
		host string
		yes  []string
		no   []string
	}{
		{"", []string{"", "a.example", "[::1]:80"}, nil},
		{"a.example", []string{"a.example", "A.Example", "a.example:80", "a.EXAMPLE:", "a.example:65535", "a.example.", "A.example.:80"}, []string{
			"", "b.example", "a.example..", "xa.example", "a.example.evil", "a.example.evil.",
		}},
		{"*.example.com", []string{"a.example.com", "a.b.Example.COM:8080", "-.example.com", "a.example.com."}, []string{
			"example.com", ".example.com", "xexample.com", "a.example.com.evil", "", "example.com:80", "example.com.",
		}},
		{"[::1]", []string{"[::1]", "[::1]:8080"}, []string{"[::2]"}},
		{"[2001:db8::a]", []string{"[2001:DB8::A]:443", "[2001:db8::a]"}, []string{"[2001:db8::b]"}},
		{"127.0.0.1", []string{"127.0.0.1", "127.0.0.1:80"}, []string{"127.0.0.10"}},
	} {
		wantMatches(t, Match{Path: "/", Host: tt.host}, func(host string) *header.RequestFields { return lookup(t, host, "/") }, tt.yes, tt.no)
	}
}

func TestMatchOnQuery(t *testing.T) {
	format := Condition{Name: "format", Value: value("video")}
	empty := Condition{Name: "format", Value: value("")}
	present := Condition{Name: "format"}
	for _, tt := range []struct {
		name       string
		conditions []Condition
		yes        []string
		no         []string
	}{
		{"a value", []Condition{format}, []string{
			"format=video", "a=1&format=video", "format=video&a", "format=audio&format=video", "&&format=video&",
			strings.Repeat("format=a&", maxFoundParams-1) + "format=video", strings.Repeat("a&", 1000) + "format=video",
		}, []string{
			strings.Repeat("format=a&", maxFoundParams) + "format=video",
			"", "format", "format=", "format=Video", "Format=video", "format=video%20", "f%6frmat=video", "format=%76ideo",
			"format=video;a=1", "xformat=video", "a=format=video", "format==video", "format=video#",
		}},
		{"an empty value", []Condition{empty}, []string{"format=", "format", "a&format=&b"}, []string{"", "format=x"}},
		{"present", []Condition{present}, []string{"format", "format=", "format=x", "a=b&format"}, []string{"", "a=format", "format%3d"}},
		{"two", []Condition{format, {Name: "size"}}, []string{"size=1&format=video", "format=video&size"}, []string{"size=1", "format=video", "size=format=video"}},
	} {
		wantMatches(t, Match{Path: "/", Query: tt.conditions}, func(query string) *header.RequestFields { return lookup(t, "h", "/?"+query) }, tt.yes, tt.no)
	}
}

func TestMatchOnHeader(t *testing.T) {
	for _, tt := range []struct {
		name       string
		conditions []Condition
		yes        [][]string
		no         [][]string
	}{
		{"a value", []Condition{{Name: "X-Env", Value: value("Test")}},
			[][]string{{"X-Env: Test"}, {"x-env:Test"}, {"X-Env: a", "X-ENV: \tTest "}},
			[][]string{nil, {"X-Env: test"}, {"X-Env: Test, b"}, {"X-Env:"}, {"X_Env: Test"}, {"X-Envy: Test"}}},
		{"an empty value", []Condition{{Name: "X-Env", Value: value("")}}, [][]string{{"X-Env:"}, {"X-Env:  "}}, [][]string{nil, {"X-Env: a"}}},
		{"present", []Condition{{Name: "x-env"}}, [][]string{{"X-Env:"}, {"X-Env: a"}}, [][]string{nil, {"X-En: v"}}},
		{"two", []Condition{{Name: "A"}, {Name: "B", Value: value("2")}}, [][]string{{"B: 2", "A: 1"}}, [][]string{{"A: 1"}, {"B: 2"}, {"A: 2", "B: 1"}}},
	} {
		wantMatches(t, Match{Path: "/", Header: tt.conditions}, func(lines []string) *header.RequestFields { return lookup(t, "h", "/", lines...) }, tt.yes, tt.no)
	}
}

func TestFirstRouteThatMatchesInFullWins(t *testing.T) {
	table := NewTable([]*Route{
		{Name: "video", Match: Match{Path: "/fill", Query: []Condition{{Name: "format", Value: value("video")}}, Host: "a.example"}},
		{Name: "a", Match: Match{Path: "/fill", Host: "a.example"}},
		{Name: "test", Match: Match{Path: "/*", Header: []Condition{{Name: "X-Env"}}}},
		{Name: "any", Match: Match{Path: "/fill"}, ClientChoice: true},
	})
	for i, r := range table.Routes {
		testsupport.True(t, r.Index == i, "route %s has the index %d", r.Name, r.Index)
	}
	for _, tt := range []struct {
		host, target string
		lines        []string
		route        string
	}{
		{"a.example", "/fill?format=video", nil, "video"},
		{"b.example", "/fill?format=video", nil, "any"},
		{"a.example", "/fill", []string{"X-Env: 1"}, "a"},
		{"b.example", "/fill", []string{"X-Env: 1"}, "test"},
		{"b.example", "/fill/x", nil, "any"},
		{"a.example", "/fill/x", nil, "any"},
		{"a.example", "/other", nil, ""},
	} {
		got := ""
		if r, _ := table.Find(lookup(t, tt.host, tt.target, tt.lines...), new(Search)); r != nil {
			got = r.Name
		}
		want(t, tt.host+tt.target, got, tt.route)
	}
}
