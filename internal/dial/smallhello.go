package dial

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"adbuffer/internal/upstream"
)

// A ClientHello with the key share of a hybrid group takes more than one packet. Some middleboxes
// expect one packet, and reset or drop such a connection. If a handshake fails before the first
// byte of the server, the dialer tries it once more without hybrid groups. Only the groups differ:
// versions, cipher suites and certificates are checked as always. An attacker who resets
// connections only achieves a classical key exchange.
const (
	smallHelloFor = 10 * time.Minute // for how long an address gets small hellos after a handshake with one
	largeHelloFor = time.Minute      // for how long an address gets no second attempt after one failed
)

// hellos remembers which addresses need a small ClientHello.
type hellos struct {
	mu sync.Mutex
	at map[netip.AddrPort]helloSize // at most maxAddrs
}

// helloSize is the result of the last second attempt at an address.
type helloSize struct {
	small bool // the handshake with the small hello was completed; else it failed too
	until time.Time
}

func (h *hellos) sizeFor(addr netip.AddrPort) (s helloSize, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s = h.at[addr]
	return s, time.Now().Before(s.until)
}

func (h *hellos) needsSmall(addr netip.AddrPort) bool {
	s, known := h.sizeFor(addr)
	return known && s.small
}

func (h *hellos) learn(addr netip.AddrPort, small bool) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = make(map[netip.AddrPort]helloSize)
	}
	if _, known := h.at[addr]; !known && len(h.at) >= maxAddrs {
		h.evictOne()
	}
	s := helloSize{small, now.Add(largeHelloFor)}
	if small {
		s.until = now.Add(smallHelloFor)
	}
	h.at[addr] = s
}

// evictOne forgets the address whose time is over first.
func (h *hellos) evictOne() {
	var first netip.AddrPort
	var until time.Time
	for a, s := range h.at {
		if until.IsZero() || s.until.Before(until) {
			first, until = a, s.until
		}
	}
	delete(h.at, first)
}

// lostHello reports whether a handshake failed as if a middlebox had dropped its ClientHello.
func lostHello(r *Result, err error) bool {
	return err != nil && r.TLS > 0 && !r.heard && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, context.DeadlineExceeded))
}

// connectAnyHello connects with a large ClientHello, and once more with a small one if a middlebox
// may have dropped the first. Both attempts together take at most the time of one dial.
func (d *Dialer) connectAnyHello(ctx context.Context, addrs []upstream.Address, offer []string) (Result, error) {
	began := time.Now()
	r, err := d.connect(ctx, addrs, offer, false)
	if !lostHello(&r, err) || r.small || d.tls.small == nil || ctx.Err() != nil {
		return r, err
	}
	addr := addrs[r.At]
	if size, known := d.hellos.sizeFor(addr.AddrPort); known && !size.small {
		return r, err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(d.timeouts.connect()+d.timeouts.handshake()))
	defer cancel()
	again, errAgain := d.connect(ctx, addrs[r.At:r.At+1], offer, true)
	again.Raced = r.Raced
	d.hellos.learn(addr.AddrPort, errAgain == nil)
	switch {
	case errAgain == nil:
	case again.heard: // its error says more
		d.stats.smallHellosFailed.Add(1)
		return again, errAgain
	default:
		d.stats.smallHellosFailed.Add(1)
		return r, err
	}
	d.stats.smallHellosGood.Add(1)
	d.opts.Warn(fmt.Errorf("%s: a TLS handshake that offered post-quantum groups (MLKEM) got no byte from the server (%w); the next one, without them, succeeded. adbuffer leaves these groups out for this address for %v; tls.groups of the SSP sets which groups it offers", addr, err, smallHelloFor))
	return again, nil
}
