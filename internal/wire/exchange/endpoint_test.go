package exchange

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
)

func TestEndpointsHaveTheirSchemesPort(t *testing.T) {
	for _, tt := range []struct {
		urls []string
		want Endpoints
	}{
		{[]string{"http://ssp.example"}, Endpoints{Scheme: "http", Path: "/", All: []Endpoint{{"ssp.example", 80, "ssp.example:80", "ssp.example"}}}},
		{[]string{"https://A.example/b%2Fid?v=2&x", "https://b.example:8443/b%2Fid?v=2&x"}, Endpoints{
			Scheme: "https", Path: "/b%2Fid", Query: "v=2&x",
			All: []Endpoint{{"a.example", 443, "a.example:443", "a.example"}, {"b.example", 8443, "b.example:8443", "b.example:8443"}},
		}},
		{[]string{"http://[2001:db8::1]:81/", "http://127.0.0.1:081/"}, Endpoints{
			Scheme: "http", Path: "/", All: []Endpoint{{"2001:db8::1", 81, "[2001:db8::1]:81", "[2001:db8::1]:81"}, {"127.0.0.1", 81, "127.0.0.1:81", "127.0.0.1:81"}},
		}},
		{[]string{"https://A.example./", "https://b.example.:8443/"}, Endpoints{
			Scheme: "https", Path: "/", All: []Endpoint{{"a.example.", 443, "a.example:443", "a.example"}, {"b.example.", 8443, "b.example:8443", "b.example:8443"}},
		}},
	} {
		got, err := ParseEndpoints(tt.urls)
		testsupport.NoError(t, err)
		testsupport.Equal(t, cmp.Diff(tt.want, got), "", "%[2]q: %[1]s", tt.urls)
	}
}

func TestBadEndpointsAreRefusedByName(t *testing.T) {
	for _, tt := range []struct{ urls, want string }{
		{"", "at least one"},
		{"ftp://a.example", "an http or https URL"},
		{"https://", "an http or https URL"},
		{"https:a.example", "an http or https URL"},
		{"https://a.example a.example:443?s3cret", "endpoint 2 must be an http or https URL"},
		{"https://u:p@a.example/", "user"},
		{"https://a.example/#x", "fragment"},
		{"https://a.example/ x", "beyond ASCII"},
		{"https://bücher.example/", "beyond ASCII"},
		{"https://a.example:0/", "a port from 1 to 65535"},
		{"https://a.example:65536/", "a port from 1 to 65535"},
		{"https://169.254.169.254/latest", "a link-local address"},
		{"https://[fe80::1]/", "a link-local address"},
		{"https://[2001:db8::1%25eth0]/", "an http or https URL"},
		{"https://0.0.0.0/", "a host to connect to"},
		{"https://255.255.255.255/", "a broadcast address"},
		{"https://[64:ff9b::a9fe:a9fe]/", "a link-local address"},
		{"https://a.example/x https://b.example/y", "endpoint 2 must have the scheme, path and query"},
		{"https://a.example/x https://b.example/x?s3cret", "scheme, path and query"},
		{"https://a.example/x http://b.example/x", "scheme, path and query"},
		{"https://a.example https://A.example:443/", "endpoint 2 must differ from endpoint 1"},
		{"https://a.example https://a.example./", "endpoint 2 must differ from endpoint 1"},
	} {
		urls := strings.Split(tt.urls, " ")
		switch {
		case tt.urls == "":
			urls = nil
		case strings.Contains(tt.urls, "/ x"):
			urls = []string{tt.urls}
		}
		_, err := ParseEndpoints(urls)
		testsupport.True(t, err != nil && strings.Contains(err.Error(), tt.want), "%q: error %v, want %q in it", urls, err, tt.want)
		testsupport.True(t, err == nil || !strings.Contains(err.Error(), "s3cret"), "%q: a secret is in the error %v", urls, err)
	}
}

func TestAuthorityIsWhatTheHostFieldHolds(t *testing.T) {
	for url, want := range map[string]string{
		"https://a.example:443": "a.example", "https://a.example:80": "a.example:80", "http://a.example:80": "a.example", "http://[2001:db8::1]:8080": "[2001:db8::1]:8080",
		"https://[2001:db8::1]": "[2001:db8::1]",
	} {
		all, err := ParseEndpoints([]string{url})
		testsupport.NoError(t, err)
		testsupport.Equal(t, all.All[0].Authority, want, "%[2]s: %[1]q", url)
	}
}

// FuzzEndpoints checks that an accepted endpoint can be written as text and read again.
func FuzzEndpoints(f *testing.F) {
	for _, s := range []string{"https://a.example/bid?v=2", "http://[::1]:80", "http://1.2.3.4:65535/%2F", "https://a.example.:443/;?", "http://[::ffff:10.0.0.1]/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ends, err := ParseEndpoints([]string{s})
		if err != nil {
			return
		}
		e := ends.All[0]
		testsupport.MustTrue(t, e.Host != "" && e.Port != 0 && strings.HasPrefix(ends.Path, "/"), "%q is accepted as %+v", s, ends)
		again := ends.Scheme + "://" + e.Authority + ends.Path
		e.Host = strings.TrimSuffix(e.Host, ".")
		if ends.Query != "" {
			again += "?" + ends.Query
		}
		twice, err := ParseEndpoints([]string{again})
		testsupport.MustTrue(t, err == nil && twice.All[0] == e && twice.Path == ends.Path && twice.Query == ends.Query, "%q, written as %q, is %+v (%v), want %+v", s, again, twice, err, ends)
	})
}
