package dial

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestEndpointsHaveTheirSchemesPort(t *testing.T) {
	for _, tt := range []struct {
		urls []string
		want Endpoints
	}{
		{[]string{"http://ssp.example"}, Endpoints{Scheme: "http", Path: "/", All: []Endpoint{{Host: "ssp.example", Port: 80}}}},
		{[]string{"https://A.example/b%2Fid?v=2&x", "https://b.example:8443/b%2Fid?v=2&x"}, Endpoints{
			Scheme: "https", Path: "/b%2Fid", Query: "v=2&x",
			All: []Endpoint{{Host: "a.example", Port: 443}, {Host: "b.example", Port: 8443}},
		}},
		{[]string{"http://[2001:db8::1]:81/", "http://127.0.0.1:081/"}, Endpoints{
			Scheme: "http", Path: "/", All: []Endpoint{{Host: "2001:db8::1", Port: 81}, {Host: "127.0.0.1", Port: 81}},
		}},
	} {
		got, err := ParseEndpoints(tt.urls)
		must(t, err)
		if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Endpoint{})); diff != "" {
			t.Errorf("%q: %s", tt.urls, diff)
		}
	}
}

func TestBadEndpointsAreRefusedByName(t *testing.T) {
	for _, tt := range []struct{ urls, want string }{
		{"", "at least one"},
		{"ftp://a.example", "not an http or https URL"},
		{"https://", "not an http or https URL"},
		{"https:a.example", "not an http or https URL"},
		{"https://a.example a.example:443?s3cret", "endpoint 2: not an http or https URL"},
		{"https://u:p@a.example/", "user"},
		{"https://a.example/#x", "fragment"},
		{"https://a.example/ x", "printable"},
		{"https://bücher.example/", "printable"},
		{"https://a.example:0/", "port 0"},
		{"https://a.example:65536/", "port 65536"},
		{"https://169.254.169.254/latest", "a link-local address"},
		{"https://[fe80::1]/", "a link-local address"},
		{"https://[2001:db8::1%25eth0]/", "zone"},
		{"https://0.0.0.0/", "an unspecified address"},
		{"https://a.example/x https://b.example/y", "endpoint 2: scheme, path and query must be those of the first"},
		{"https://a.example/x https://b.example/x?s3cret", "scheme, path and query"},
		{"https://a.example/x http://b.example/x", "scheme, path and query"},
		{"https://a.example https://A.example:443/", "the same host and port"},
	} {
		urls := strings.Split(tt.urls, " ")
		switch {
		case tt.urls == "":
			urls = nil
		case strings.Contains(tt.urls, "/ x"):
			urls = []string{tt.urls}
		}
		_, err := ParseEndpoints(urls)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want %q in it", urls, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: a secret is in the error %v", urls, err)
		}
	}
}

func TestAuthorityIsWhatTheHostFieldHolds(t *testing.T) {
	for _, tt := range []struct {
		scheme, host, addr, want string
	}{
		{"https", "a.example", "192.0.2.1:443", "a.example"},
		{"https", "a.example", "192.0.2.1:80", "a.example:80"},
		{"http", "a.example", "192.0.2.1:80", "a.example"},
		{"http", "2001:db8::1", "[2001:db8::1]:8080", "[2001:db8::1]:8080"},
	} {
		ends := Endpoints{Scheme: tt.scheme}
		if got := ends.Authority(Addr{tt.host, netip.MustParseAddrPort(tt.addr)}); got != tt.want {
			t.Errorf("%s %s %s: %q, want %q", tt.scheme, tt.host, tt.addr, got, tt.want)
		}
	}
}

// FuzzEndpoints: what is accepted can be written down and read again.
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
		if e.Host == "" || e.Port == 0 || !strings.HasPrefix(ends.Path, "/") {
			t.Fatalf("%q is accepted as %+v", s, ends)
		}
		again := ends.Scheme + "://" + ends.Authority(Addr{e.Host, netip.AddrPortFrom(netip.IPv4Unspecified(), e.Port)}) + ends.Path
		if ends.Query != "" {
			again += "?" + ends.Query
		}
		twice, err := ParseEndpoints([]string{again})
		if err != nil || twice.All[0] != e || twice.Path != ends.Path || twice.Query != ends.Query {
			t.Fatalf("%q, written as %q, is %+v (%v), want %+v", s, again, twice, err, ends)
		}
	})
}
