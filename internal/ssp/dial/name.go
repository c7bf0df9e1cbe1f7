package dial

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

const (
	// resultFresh is how long the result of a look-up is used without another look-up. The system's resolver hides
	// the lifetimes of DNS records, and load balancers rotate faster anyway.
	resultFresh = 20 * time.Second
	// resultOld is the age up to which a result may be used while its name is looked up again. If the result is
	// older, the SSP may have moved, and waiting for the look-up costs less than a dial to an old address.
	resultOld = 5 * time.Minute
	// The pause after a failed look-up doubles from lookupPause to maxLookupPause.
	lookupPause    = time.Second
	maxLookupPause = 30 * time.Second
	// lookupsUntilGone is the number of look-ups in a row whose results lack an address until the address is dropped.
	// A name server may return a different subset of its addresses each time.
	lookupsUntilGone = 3
)

// networks lists the address families. Each family is looked up by itself, so that a family without a response
// neither delays nor replaces the addresses of the other family.
var networks = [...]string{"ip4", "ip6"}

// name is one host to look up.
type name struct {
	host      string
	literal   bool           // an IP address: never looked up
	ips       []netip.Addr   // the addresses in use, from known
	since     time.Time      // when the last addresses came; zero before
	due       time.Time      // when the next look-up is due
	lookingUp bool           // a look-up is under way
	err       error          // error of the last look-up; nil if it succeeded as far as known addresses depend on it
	failing   time.Time      // since when err has been set; zero if err is nil
	change    *AddressChange // the last change of ips; nil before the first one
	failures  int            // how many look-ups in a row failed for a family

	// known maps the addresses of each family to the number of look-ups in a row whose results lacked the address. A
	// family whose look-ups fail keeps its addresses.
	known [len(networks)]map[netip.Addr]int
}

// answer is the result of a look-up for one address family: addresses, or an error, or neither if the name has no
// address in the family.
type answer struct {
	family    int          // index in networks
	ips       []netip.Addr // addresses that may be dialled
	err       error        // the look-up failed, so the family's addresses are unknown
	noAddress error        // the resolver's error for a name without addresses in the family; may be nil
	refused   error        // error about an address in the result that is never dialled
}

// forgetOld makes the next look-up alone decide which addresses stay, if the known addresses are old: the SSP may have
// moved.
func (n *name) forgetOld(now time.Time) {
	if n.err != nil || now.Sub(n.since) < resultOld {
		return
	}
	for _, known := range n.known {
		for ip := range known {
			known[ip] = lookupsUntilGone - 1
		}
	}
}

// end records how a look-up ended. If one family failed while the other brought addresses, that is an error
// only if known addresses of the failed family stay in use. The name is looked up again soon in either case.
func (n *name) end(last []answer, gotAddresses bool, now time.Time) {
	n.lookingUp = false
	var err, none error
	failed := false
	for _, a := range last {
		none = cmp.Or(none, a.noAddress)
		switch {
		case a.err == nil:
			continue
		case !gotAddresses:
			err = cmp.Or(err, a.err)
		case len(n.known[a.family]) > 0:
			err = fmt.Errorf("%w (%s only)", a.err, networks[a.family])
		}
		failed = true
	}
	if !gotAddresses {
		err = cmp.Or(err, none, dnsError(n.host, errNoAddress))
	}
	n.err = err
	switch {
	case err == nil:
		n.failing = time.Time{}
	case n.failing.IsZero():
		n.failing = now
	}
	if gotAddresses && !failed {
		n.failures = 0
		n.due = n.since.Add(resultFresh)
		return
	}
	n.failures++
	n.due = now.Add(pauseAfter(n.failures))
	if old := n.since.Add(resultFresh); gotAddresses && old.Before(n.due) {
		n.due = old
	}
}

// afterLookup returns the known addresses of a family after a look-up that returned found.
func afterLookup(known map[netip.Addr]int, found []netip.Addr) map[netip.Addr]int {
	next := make(map[netip.Addr]int, len(known)+len(found))
	for ip, lacked := range known {
		if lacked+1 < lookupsUntilGone {
			next[ip] = lacked + 1
		}
	}
	for _, ip := range found {
		next[ip] = 0
	}
	return next
}

// choose sets the addresses in use, at most limit: first the addresses that the last look-up returned, then those
// that it lacked.
func (n *name) choose(seed maphash.Seed, limit int) {
	var chosen []netip.Addr
	for lacked := range lookupsUntilGone {
		var ips []netip.Addr
		for _, known := range n.known {
			for ip, times := range known {
				if times == lacked {
					ips = append(ips, ip)
				}
			}
		}
		chosen = append(chosen, arrange(ips, seed, limit-len(chosen))...)
	}
	n.ips = arrange(chosen, seed, limit)
}

// pauseAfter returns the pause after this many failures in a row, ±20 %.
func pauseAfter(failures int) time.Duration {
	pause := min(lookupPause<<min(failures-1, 5), maxLookupPause)
	return rates.Jitter(pause, 0.2)
}

var errNoAddress = errors.New("the look-up returned no address")

// isNoAddress reports whether the error of a look-up says that the name has no address in the family.
func isNoAddress(err error) bool {
	var dns *net.DNSError
	var addr *net.AddrError
	return errors.As(err, &addr) || errors.As(err, &dns) && dns.IsNotFound
}

// dnsError returns err as a *net.DNSError.
func dnsError(host string, err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return err
	}
	return &net.DNSError{UnwrapErr: err, Err: err.Error(), Name: host, IsTimeout: exchange.IsTimeout(err)}
}
