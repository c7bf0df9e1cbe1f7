package dial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// names responds to look-ups.
type names struct {
	mu      sync.Mutex
	results map[string]string // addresses, or an error in "!"
	takes   map[string]time.Duration
	lookups map[string]int
	warned  []string
	changes []string
}

// lookup finds the addresses of the family. A host's look-up counts once, though it asks for both.
func (n *names) lookup(ctx context.Context, network, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	if network == "ip4" {
		n.lookups[host]++
	}
	result, takes := n.results[host], n.takes[host]
	if own, ok := n.results[host+"/"+network]; ok {
		result, takes = own, n.takes[host+"/"+network]
	}
	n.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if why, bad := strings.CutPrefix(result, "!"); bad {
		return nil, &net.DNSError{Err: why, Name: host, IsNotFound: why == "no such host"}
	}
	var ips []netip.Addr
	for s := range strings.FieldsSeq(result) {
		if ip := netip.MustParseAddr(s); ip.Unmap().Is4() == (network == "ip4") {
			ips = append(ips, ip)
		}
	}
	return ips, nil
}

// set sets the addresses of a host, or those of one family, "a.example/ip6".
func (n *names) set(host, result string, takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.results[host], n.takes[host] = result, takes
}

func (n *names) warn(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warned = append(n.warned, err.Error())
}

func (n *names) changed(c AddressChange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = append(n.changes, fmt.Sprint(c.Host, " came ", c.Came, " went ", c.Went))
}

func (n *names) warnings() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.warned)
}

func (n *names) wantLookups(t *testing.T, host string, want int) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	testsupport.Equal(t, n.lookups[host], want, "%[2]s was looked up %[1]d times", host)
}

// lookUpAgain makes this many look-ups of a.example, each resultFresh after the last one.
func (n *names) lookUpAgain(t *testing.T, d *Dialer, times int) {
	t.Helper()
	for range times {
		n.mu.Lock()
		before := n.lookups["a.example"]
		n.mu.Unlock()
		time.Sleep(resultFresh)
		_, err := d.Addresses(t.Context())
		testsupport.NoError(t, err)
		synctest.Wait()
		n.wantLookups(t, "a.example", before+1)
	}
}

const connectTimeout = 250 * time.Millisecond

// resolve runs f in a bubble, with a dialer for the URLs.
func resolve(t *testing.T, f func(t *testing.T, n *names, d *Dialer), urls ...string) {
	testsupport.Bubble(t, func(t *testing.T) {
		n := &names{results: map[string]string{}, takes: map[string]time.Duration{}, lookups: map[string]int{}}
		ends, err := exchange.ParseEndpoints(urls)
		testsupport.NoError(t, err)
		d, err := New(Options{Endpoints: ends, Mode: Auto, ConnectTimeout: connectTimeout, Lookup: n.lookup, Warn: n.warn, Changed: n.changed})
		testsupport.NoError(t, err)
		defer d.Close()
		f(t, n, d)
	})
}

func wantAddrs(t *testing.T, d *Dialer, want ...string) []exchange.Address {
	t.Helper()
	got, err := d.Addresses(t.Context())
	testsupport.NoError(t, err)
	slices.Sort(want)
	s := sorted(got)
	testsupport.MustTrue(t, slices.Equal(s, want), "addresses %q, want %q", s, want)
	return got
}
