package dial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"adbuffer/internal/lag"
	"adbuffer/internal/rates"
	"adbuffer/internal/upstream"
)

const (
	// resultKept is how long a look-up's result counts as new. The system's resolver hides the
	// lifetimes of DNS records, and load balancers rotate faster anyway.
	resultKept = 20 * time.Second
	// resultOld is the age up to which a result may be used while its name is looked up again. An
	// SSP without requests for longer may have moved. Then a wait for the look-up costs less than a
	// dial to the old address.
	resultOld = 5 * time.Minute
	// lookupLimit ends a look-up. It is much longer than callers wait, since later callers also use
	// its result.
	lookupLimit = 10 * time.Second
	// The pause after a failed look-up doubles from lookupPause to maxLookupPause.
	lookupPause    = time.Second
	maxLookupPause = 30 * time.Second

	// A result's first maxAddrsPerName addresses are used, and at most maxAddrs (or one per
	// endpoint) over all endpoints. So a hostile DNS response costs little.
	maxAddrsPerName = 16
	maxAddrs        = 256
)

// Lookup returns the IPv4 and IPv6 addresses of a name. It must return soon after ctx ends.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// resolver keeps the addresses of one SSP's endpoints. It works only when it is called: if a result
// is no longer new, it looks the name up again in the background. Each name has at most one
// goroutine, which ends within lookupLimit or with close.
type resolver struct {
	lookup   Lookup
	from     *sources
	timeouts *timeouts       // of the Dialer: a caller waits for a look-up no longer than for a connection
	lag      *lag.Meter      // extends that wait
	warn     func(error)     // receives errors that fail no caller; never nil
	stats    *counters       // of the Dialer
	seed     maphash.Seed    // see arrange
	ctx      context.Context // of look-ups; ends with close
	cancel   context.CancelFunc
	wg       sync.WaitGroup // look-ups

	mu          sync.Mutex // guards the fields below; never held across a look-up
	ends        []upstream.Endpoint
	perName     int    // number of addresses used for one name
	hosts       string // names that are looked up, for messages
	names       map[string]*name
	addrs       []upstream.Address // never changed in place: callers keep the slice
	lookupEnded chan struct{}      // closed and replaced after each look-up
	closed      bool
}

// name is one host to look up.
type name struct {
	host      string
	literal   bool         // an IP address: never looked up
	ips       []netip.Addr // the last good result
	since     time.Time    // when that result came; zero before
	due       time.Time    // time of the next look-up
	lookingUp bool         // a look-up is under way
	failures  int          // failed look-ups since the last good result
	failing   time.Time    // when the first of them ended; zero without
	err       error        // of the last look-up
}

func newResolver(from *sources, endpoints []upstream.Endpoint, lookup Lookup, t *timeouts, lag *lag.Meter, warn func(error), stats *counters) *resolver {
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	r := &resolver{
		lookup: lookup, from: from, timeouts: t, lag: lag, warn: warn, stats: stats,
		seed:        maphash.MakeSeed(),
		lookupEnded: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.set(endpoints)
	return r
}

// set changes the endpoints. Names that stay keep their results.
func (r *resolver) set(endpoints []upstream.Endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.names
	r.names = make(map[string]*name)
	r.perName = max(1, min(maxAddrsPerName, maxAddrs/len(endpoints)))
	r.ends = endpoints
	var looked []string
	for _, e := range r.ends {
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

// addresses returns the known addresses. It waits only if it knows none, or only old ones.
func (r *resolver) addresses(ctx context.Context) ([]upstream.Address, error) {
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
	case len(r.addrs) > 0: // old addresses at worst
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

// refreshLocked looks up the names that are due. If no address is known, it looks up all names,
// even after a recent failure: then callers wait, and their rate bounds the look-ups.
func (r *resolver) refreshLocked(now time.Time) {
	for _, n := range r.names {
		if n.literal || n.lookingUp || now.Before(n.due) && len(r.addrs) > 0 {
			continue
		}
		n.lookingUp = true
		r.wg.Go(func() { r.lookUp(n) })
	}
}

// servesAtOnceLocked reports whether a caller should use the known addresses at once: one of them is a
// literal or was looked up recently, or its latest look-up failed. Otherwise all are old, and the
// caller should wait for a look-up.
func (r *resolver) servesAtOnceLocked(now time.Time) bool {
	for _, n := range r.names {
		if len(n.ips) > 0 && (n.literal || n.failures > 0 || now.Sub(n.since) < resultOld) {
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

func (r *resolver) lookUp(n *name) {
	ctx, cancel := context.WithTimeout(r.ctx, lookupLimit)
	defer cancel()
	r.stats.lookups.Add(1)
	found, err := r.lookup(ctx, n.host)
	r.mu.Lock()
	perName := r.perName
	r.mu.Unlock()
	var ips []netip.Addr
	var bad error
	if err == nil {
		ips, bad = r.usable(found, perName)
		if len(ips) == 0 {
			err = cmp.Or(bad, errNoAddress)
		}
	}
	if err != nil {
		r.stats.lookupsFailed.Add(1)
		err = dnsError(n.host, err)
	}

	r.mu.Lock()
	n.lookingUp, n.err = false, err
	if err != nil {
		n.failures++
		if n.failures == 1 {
			n.failing = time.Now()
		}
		n.due = time.Now().Add(pauseAfter(n.failures))
	} else {
		n.failures, n.failing, n.since = 0, time.Time{}, time.Now()
		n.due = n.since.Add(resultKept)
		n.ips = ips
		if addrs := r.mergedLocked(); !slices.Equal(addrs, r.addrs) {
			r.addrs = addrs
		}
	}
	known, others := len(n.ips) > 0, len(r.addrs) > 0
	close(r.lookupEnded)
	r.lookupEnded = make(chan struct{})
	closed := r.closed
	r.mu.Unlock()

	switch {
	case closed:
	case err != nil && known:
		r.warn(fmt.Errorf("%w; its last good result stays in use", err))
	case err != nil && others: // without other addresses, the callers get the error
		r.warn(fmt.Errorf("%w; only other endpoints are in use", err))
	case err == nil && bad != nil:
		r.warn(fmt.Errorf("%w; its other addresses are used", dnsError(n.host, bad)))
	}
}

var errNoAddress = errors.New("the look-up returned no address")

// usable returns the addresses of a result that may be dialled. If the result holds any other address,
// bad is an error about one of them.
func (r *resolver) usable(found []netip.Addr, perName int) (ips []netip.Addr, bad error) {
	for _, ip := range found {
		ip = ip.Unmap().WithZone("")
		if kind := upstream.Undialable(ip); kind != "" {
			r.stats.addrsRefused.Add(1)
			bad = fmt.Errorf("the look-up returned %s, %s address, which is never dialled", ip, kind)
			continue
		}
		if !r.from.serve(ip) {
			bad = fmt.Errorf("the look-up returned %s, and none of source_addresses is of that family", ip)
			continue
		}
		ips = append(ips, ip)
	}
	all := arrange(ips, r.seed, len(ips))
	ips = all[:min(len(all), perName)]
	r.stats.addrsBeyond.Add(uint64(len(all) - len(ips)))
	return ips, bad
}

// pauseAfter returns the pause after this many failures, ±20 %.
func pauseAfter(failures int) time.Duration {
	pause := min(lookupPause<<min(failures-1, 5), maxLookupPause)
	return rates.Jitter(pause, 0.2)
}

func (r *resolver) mergedLocked() (all []upstream.Address) {
	for _, e := range r.ends {
		for _, ip := range r.names[e.Host].ips {
			all = append(all, upstream.Address{Endpoint: e, AddrPort: netip.AddrPortFrom(ip, e.Port)})
		}
	}
	return all
}

// FailedLookup is a name whose last look-up failed.
type FailedLookup struct {
	Host  string
	Since time.Time // when its first look-up after the last good result failed
	Err   error     // of the last look-up
	Kept  bool      // addresses of the last good result stay in use
}

// failureKnown is how long after its due time a look-up may begin. After that the name is not in use,
// and whether its look-up would fail is unknown.
const failureKnown = 30 * time.Second

// failed returns the names whose last look-up failed, in the order of the endpoints, and how many names
// are looked up.
func (r *resolver) failed(now time.Time) (all []FailedLookup, names int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var seen []string
	for _, e := range r.ends {
		n := r.names[e.Host]
		if n.literal || slices.Contains(seen, e.Host) {
			continue
		}
		seen = append(seen, e.Host)
		if n.failures > 0 && (n.lookingUp || now.Sub(n.due) < failureKnown) {
			all = append(all, FailedLookup{Host: n.host, Since: n.failing, Err: n.err, Kept: len(n.ips) > 0})
		}
	}
	return all, len(seen)
}

// errLocked returns the error of a name that failed.
func (r *resolver) errLocked() error {
	for _, n := range r.names {
		if n.err != nil {
			return n.err
		}
	}
	return errNoAddress
}

// close ends the look-ups under way and waits for them.
func (r *resolver) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
}

// dnsError returns err as a *net.DNSError.
func dnsError(host string, err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return err
	}
	return &net.DNSError{UnwrapErr: err, Err: err.Error(), Name: host, IsTimeout: upstream.IsTimeout(err)}
}
