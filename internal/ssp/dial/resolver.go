package dial

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/wire/exchange"
)

const (
	// lookupTimeout bounds a look-up. It is much longer than callers wait, since later callers use the result too.
	lookupTimeout = 10 * time.Second

	// resolutionDelay is how long callers wait for the second address family after the first family has brought
	// addresses (RFC 8305, section 3); it is at most half of timeouts.connect. Addresses that arrive later are used
	// by later calls.
	resolutionDelay = 50 * time.Millisecond

	// A result's first maxAddrsPerName addresses are used, and at most maxAddrs (or one per
	// endpoint) over all endpoints. So a hostile DNS response costs little.
	maxAddrsPerName = 16
	maxAddrs        = 256
)

// Lookup returns the addresses of a name in one family: network is "ip4" or "ip6". It must return soon after
// ctx ends. A name without addresses in the family is no error, or a *net.AddrError, or a *net.DNSError with
// IsNotFound, as those of net.Resolver are.
type Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)

// resolver keeps the addresses of one SSP's endpoints. It looks a name up only when it is called: if the name's
// result is no longer fresh, it starts a look-up in the background. Each name has at most one running look-up, which
// ends after lookupTimeout, or with close.
type resolver struct {
	lookup   Lookup
	sources  *sources
	timeouts *timeouts           // of the Dialer; a caller waits for a look-up at most timeouts.connect
	lag      *lag.Meter          // extends the wait for a look-up
	warn     func(error)         // receives errors that fail no caller; never nil
	changed  func(AddressChange) // never nil
	stats    *counters           // of the Dialer
	seed     maphash.Seed        // see arrange
	ctx      context.Context     // of look-ups; ends with close
	cancel   context.CancelFunc
	wg       sync.WaitGroup // look-ups

	mu          sync.Mutex // guards the fields below; never held across a look-up
	endpoints   []exchange.Endpoint
	perName     int    // number of addresses used for one name
	hosts       string // names that are looked up, for messages
	names       map[string]*name
	addrs       []exchange.Address // never changed in place: callers keep the slice
	lookupEnded chan struct{}      // closed and replaced after each look-up
	closed      bool
}

func newResolver(from *sources, endpoints []exchange.Endpoint, lookup Lookup, t *timeouts, lag *lag.Meter, warn func(error), changed func(AddressChange), stats *counters) *resolver {
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}
	r := &resolver{
		lookup: lookup, sources: from, timeouts: t, lag: lag, warn: warn, changed: changed, stats: stats,
		seed:        maphash.MakeSeed(),
		lookupEnded: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.set(endpoints)
	return r
}

// set changes the endpoints. Names that stay keep their results.
func (r *resolver) set(endpoints []exchange.Endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.names
	r.names = make(map[string]*name)
	r.perName = max(1, min(maxAddrsPerName, maxAddrs/len(endpoints)))
	r.endpoints = endpoints
	var looked []string
	for _, e := range r.endpoints {
		if r.names[e.Host] != nil {
			continue // the same name with another port
		}
		n := before[e.Host]
		if n == nil {
			n = &name{host: e.Host}
		}
		if ip, err := netip.ParseAddr(e.Host); err == nil {
			n.literal, n.ips = true, []netip.Addr{ip.Unmap()}
		} else {
			looked = append(looked, e.Host)
		}
		r.names[e.Host] = n
	}
	if n := len(looked); n > 4 {
		looked = append(looked[:3], fmt.Sprintf("%d more", n-3))
	}
	r.hosts = strings.Join(looked, ", ")
	r.addrs = r.mergedLocked()
}

// addresses returns the known addresses. It waits for a look-up only if no address is known, or if all are old.
func (r *resolver) addresses(ctx context.Context) ([]exchange.Address, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, connectFailed("the SSP was taken out of service", net.ErrClosed)
	}
	r.refreshLocked(time.Now())
	if r.servesAtOnceLocked(time.Now()) {
		return r.addrs, nil
	}
	limit := r.timeouts.connect()
	limited, cancel := r.lag.WithTimeout(ctx, limit)
	defer cancel()
	for limited.Err() == nil && r.lookingUpLocked() && !r.servesAtOnceLocked(time.Now()) {
		lookupEnded := r.lookupEnded
		r.mu.Unlock()
		select {
		case <-lookupEnded:
		case <-limited.Done():
		}
		r.mu.Lock()
	}
	switch {
	case ctx.Err() != nil:
		return nil, connectFailed("the dial was cancelled during the look-up of "+r.hosts, ctx.Err())
	case len(r.addrs) > 0: // they may be old
		return r.addrs, nil
	case r.lookingUpLocked():
		return nil, connectFailed(fmt.Sprintf("no response to the look-up of %s within %v; see timeouts.connect", r.hosts, limit),
			&net.DNSError{Err: "no response yet", Name: r.hosts, IsTimeout: true})
	}
	what, err := "the look-up of "+r.hosts+" failed", r.errLocked()
	if local := localError(what, err); local != nil {
		return nil, local
	}
	return nil, connectFailed(what, err)
}

// refreshLocked starts look-ups of the names that are due. If no address is known at all, it looks up all names, even
// after a recent failure: callers wait for the look-ups then, so there cannot be many.
func (r *resolver) refreshLocked(now time.Time) {
	for _, n := range r.names {
		if n.literal || n.lookingUp || now.Before(n.due) && len(r.addrs) > 0 {
			continue
		}
		n.lookingUp = true
		r.wg.Go(func() { r.lookUp(n) })
	}
}

// servesAtOnceLocked reports whether a caller should use the known addresses at once: one of them is a literal or was
// looked up recently, or its latest look-up failed. Otherwise all known addresses are old, and the caller should wait
// for a look-up.
func (r *resolver) servesAtOnceLocked(now time.Time) bool {
	for _, n := range r.names {
		if len(n.ips) > 0 && (n.literal || n.err != nil || now.Sub(n.since) < resultOld) {
			return true
		}
	}
	return false
}

func (r *resolver) lookingUpLocked() bool {
	for _, n := range r.names {
		if n.lookingUp {
			return true
		}
	}
	return false
}

// lookUp looks up both address families of n in parallel. If the second family does not respond, waiting callers get
// the addresses of the first family after resolutionDelay.
func (r *resolver) lookUp(n *name) {
	ctx, cancel := context.WithTimeout(r.ctx, lookupTimeout)
	defer cancel()
	r.mu.Lock()
	n.forgetOld(time.Now())
	r.mu.Unlock()
	answers := make(chan answer, len(networks))
	for family := range networks {
		r.wg.Go(func() { answers <- r.ask(ctx, n.host, family) })
	}
	var unapplied []answer // answers that have not been applied
	gotAddresses := false
	var delay <-chan time.Time
	for pending := len(networks); pending > 0; {
		select {
		case a := <-answers:
			pending--
			unapplied = append(unapplied, a)
			if len(a.ips) > 0 && !gotAddresses {
				gotAddresses = true
				delay = time.After(min(resolutionDelay, r.timeouts.connect()/2))
			}
		case <-delay:
			r.apply(n, unapplied, gotAddresses, false)
			unapplied = nil
		}
	}
	r.apply(n, unapplied, gotAddresses, true)
}

// ask looks up one address family of a name.
func (r *resolver) ask(ctx context.Context, host string, family int) answer {
	a := answer{family: family}
	found, err := r.lookup(ctx, networks[family], host)
	if err != nil {
		if err = dnsError(host, err); isNoAddress(err) {
			a.noAddress = err
		} else {
			a.err = err
		}
		return a
	}
	r.mu.Lock()
	perName := r.perName
	r.mu.Unlock()
	a.ips, a.refused = r.usable(found, perName)
	if a.refused != nil {
		a.refused = dnsError(host, a.refused)
	}
	if len(a.ips) == 0 {
		a.err = a.refused
	}
	return a
}

// apply applies answers to n, and wakes the callers that wait. gotAddresses says that the look-up has brought
// addresses of any family. Only then does an answer without addresses mean that its family has none: a look-up
// without any address is an error, after which the name keeps its addresses. ended is false while the other family is
// still being looked up.
func (r *resolver) apply(n *name, answers []answer, gotAddresses, ended bool) {
	now := time.Now()
	var refused error
	r.mu.Lock()
	before := n.ips
	for _, a := range answers {
		refused = cmp.Or(refused, a.refused)
		if a.err == nil && gotAddresses {
			n.known[a.family] = afterLookup(n.known[a.family], a.ips)
		}
		if len(a.ips) > 0 {
			n.since = now
		}
	}
	if gotAddresses {
		n.choose(r.seed, r.perName)
		for _, a := range answers {
			r.stats.addrsBeyond.Add(uint64(len(difference(a.ips, n.ips))))
		}
	}
	if ended {
		n.end(answers, gotAddresses, now)
	}
	if !slices.Equal(before, n.ips) {
		if addrs := r.mergedLocked(); !slices.Equal(addrs, r.addrs) {
			r.addrs = addrs
		}
	}
	var change *AddressChange
	if len(before) > 0 && !slices.Equal(before, n.ips) {
		change = &AddressChange{n.host, now, difference(n.ips, before), difference(before, n.ips), n.ips}
		n.change = change
	}
	err := n.err
	known, others := len(n.ips) > 0, len(r.addrs) > 0
	close(r.lookupEnded)
	r.lookupEnded = make(chan struct{})
	closed := r.closed
	r.mu.Unlock()

	if closed {
		return
	}
	if change != nil {
		r.changed(*change)
	}
	switch {
	case !ended:
	case err != nil && known:
		r.warn(fmt.Errorf("%w; its last good result stays in use", err))
	case err != nil && others: // without other addresses, the callers get the error
		r.warn(fmt.Errorf("%w; only other endpoints are in use", err))
	}
	if refused != nil && (err == nil || !ended) {
		r.warn(fmt.Errorf("%w; its other addresses are used", refused))
	}
}

// difference returns the addresses of all that are not in others.
func difference(all, others []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(all), func(ip netip.Addr) bool { return slices.Contains(others, ip) })
}

// usable returns the addresses of a result that may be dialled. If the result holds other addresses too, refused is
// an error about one of them.
func (r *resolver) usable(found []netip.Addr, perName int) (ips []netip.Addr, refused error) {
	for _, ip := range found {
		ip = ip.Unmap().WithZone("")
		if kind := exchange.Undialable(ip); kind != "" {
			r.stats.addrsRefused.Add(1)
			refused = fmt.Errorf("the look-up returned %s, %s address, which is never dialled", ip, kind)
			continue
		}
		if !r.sources.canReach(ip) {
			refused = fmt.Errorf("the look-up returned %s, and no address in source_addresses is of the same IP family", ip)
			continue
		}
		ips = append(ips, ip)
	}
	all := arrange(ips, r.seed, len(ips))
	ips = all[:min(len(all), perName)]
	r.stats.addrsBeyond.Add(uint64(len(all) - len(ips)))
	return ips, refused
}

func (r *resolver) mergedLocked() (all []exchange.Address) {
	for _, e := range r.endpoints {
		for _, ip := range r.names[e.Host].ips {
			all = append(all, exchange.Address{Endpoint: e, AddrPort: netip.AddrPortFrom(ip, e.Port)})
		}
	}
	return all
}

// FailedLookup is a name whose last look-up failed.
type FailedLookup struct {
	Host  string
	Since time.Time // when the first look-up after the last successful one failed
	Err   error     // error of the last look-up
	Kept  bool      // addresses of an earlier result stay in use
}

// failureKnown is how long after its due time a look-up may start. If it has not started by then, the name is not in
// use, and whether a look-up would fail is unknown.
const failureKnown = 30 * time.Second

// failedLookups returns the names whose last look-up failed, in the order of the endpoints, and the number of names
// that are looked up at all.
func (r *resolver) failedLookups(now time.Time) (all []FailedLookup, names int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var seen []string
	for _, e := range r.endpoints {
		n := r.names[e.Host]
		if n.literal || slices.Contains(seen, e.Host) {
			continue
		}
		seen = append(seen, e.Host)
		if n.err != nil && (n.lookingUp || now.Sub(n.due) < failureKnown) {
			all = append(all, FailedLookup{Host: n.host, Since: n.failing, Err: n.err, Kept: len(n.ips) > 0})
		}
	}
	return all, len(seen)
}

func (r *resolver) changes() (all []AddressChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[*name]bool)
	for _, e := range r.endpoints {
		if n := r.names[e.Host]; n.change != nil && !seen[n] {
			seen[n] = true
			all = append(all, *n.change)
		}
	}
	return all
}

// errLocked returns the error of a name whose look-up failed.
func (r *resolver) errLocked() error {
	for _, n := range r.names {
		if n.err != nil {
			return n.err
		}
	}
	return errNoAddress
}

// close cancels running look-ups, and waits for their end.
func (r *resolver) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
}
