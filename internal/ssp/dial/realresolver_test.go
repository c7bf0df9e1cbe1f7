package dial

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// resolveOver returns a dialer whose look-ups are those of Go's resolver, at s.
func resolveOver(t *testing.T, s *testsupport.DNS) *Dialer {
	t.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.Addr.String())
	}}
	ends, err := exchange.ParseEndpoints([]string{"http://ssp.adbuffer.test"})
	testsupport.NoError(t, err)
	return newDialer(t, Options{Endpoints: ends, Mode: Auto, ConnectTimeout: testsupport.Patience, Lookup: resolver.LookupNetIP})
}

func startDNS(t *testing.T) *testsupport.DNS {
	t.Helper()
	s, err := testsupport.StartDNS(t, "127.0.0.1:0")
	testsupport.NoError(t, err)
	return s
}

func TestTheSystemsResolverIsAskedForEachFamily(t *testing.T) {
	for name, c := range map[string]struct {
		ip4, ip6 string
		want     []string
	}{
		"both":                      {"192.0.2.1", "2001:db8::1", []string{"192.0.2.1:80", "[2001:db8::1]:80"}},
		"IPv4 alone":                {"192.0.2.1", "", []string{"192.0.2.1:80"}},
		"IPv6 alone":                {"", "2001:db8::1", []string{"[2001:db8::1]:80"}},
		"no response for IPv6":      {"192.0.2.1", testsupport.DNSSilent, []string{"192.0.2.1:80"}},
		"no response for IPv4":      {testsupport.DNSSilent, "2001:db8::1", []string{"[2001:db8::1]:80"}},
		"an error for IPv6":         {"192.0.2.1", testsupport.DNSFails, []string{"192.0.2.1:80"}},
		"an error, and no response": {testsupport.DNSFails, testsupport.DNSSilent, nil},
		"none":                      {"", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startDNS(t)
			s.Set("ip4", c.ip4)
			s.Set("ip6", c.ip6)
			d := resolveOver(t, s)
			addrs, err := d.Addresses(t.Context())
			var got []string
			for _, a := range addrs {
				got = append(got, a.AddrPort.String())
			}
			slices.Sort(got)
			testsupport.True(t, slices.Equal(got, c.want) && (err == nil) == (c.want != nil), "addresses %q, %v; want %q", got, err, c.want)
			if c.want == nil {
				checkError(t, err, exchange.ConnectFailed, "the look-up of ssp.adbuffer.test")
			}
			testsupport.True(t, s.Queries("ip4") > 0 && s.Queries("ip6") > 0, "%d queries for IPv4, %d for IPv6", s.Queries("ip4"), s.Queries("ip6"))
		})
	}
}

func TestAnErrorOfTheSystemsResolverKeepsTheFamilysAddresses(t *testing.T) {
	t.Parallel()
	s := startDNS(t)
	s.Set("ip4", "192.0.2.1")
	s.Set("ip6", "2001:db8::1")
	d := resolveOver(t, s)
	wantAddrs(t, d, "ssp.adbuffer.test (192.0.2.1:80)", "ssp.adbuffer.test ([2001:db8::1]:80)")
	s.Set("ip4", testsupport.DNSFails)
	s.Set("ip6", "2001:db8::2")
	d.resolver.mu.Lock()
	d.resolver.names["ssp.adbuffer.test"].due = time.Time{}
	d.resolver.mu.Unlock()
	testsupport.Eventually(t, "the look-up fails", func() bool {
		_, err := d.Addresses(t.Context())
		testsupport.NoError(t, err)
		failed, _ := d.resolver.failedLookups(time.Now())
		return len(failed) > 0
	})
	wantAddrs(t, d, "ssp.adbuffer.test (192.0.2.1:80)", "ssp.adbuffer.test ([2001:db8::1]:80)", "ssp.adbuffer.test ([2001:db8::2]:80)")
}
