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
//
// Only a completed handshake shows what an address accepts. If the address has lately completed one
// with a large hello, the loss was an accident, and the next hellos are large again.
type helloSize uint8

const (
	unknownHello helloSize = iota
	takesLarge             // a handshake with a large hello was completed
	needsSmall             // a large hello was lost, and a handshake with a small one was completed
	takesNone              // handshakes with both failed
)

// helloFor is how long the dialer remembers the size for an address. Meanwhile an address that needs
// small hellos gets only small ones, and an address that accepts neither gets no second attempt.
var helloFor = [...]time.Duration{takesLarge: 10 * time.Minute, needsSmall: 10 * time.Minute, takesNone: time.Minute}

// hellos remembers which ClientHellos each address accepts.
type hellos struct {
	mu sync.Mutex
	at map[netip.AddrPort]learnedHello // at most maxAddrs
}

type learnedHello struct {
	size  helloSize
	until time.Time
}

func (h *hellos) sizeFor(addr netip.AddrPort) helloSize {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.at[addr]; time.Now().Before(l.until) {
		return l.size
	}
	return unknownHello
}

func (h *hellos) learn(addr netip.AddrPort, size helloSize) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil {
		h.at = make(map[netip.AddrPort]learnedHello)
	}
	h.at[addr] = learnedHello{size, time.Now().Add(helloFor[size])}
	for other := range h.at { // in a random order
		if len(h.at) <= maxAddrs {
			break
		}
		if other != addr {
			delete(h.at, other)
		}
	}
}

// lostHello reports whether a handshake failed as if a middlebox had dropped its ClientHello.
func lostHello(r *Result, err error) bool {
	return err != nil && r.TLS > 0 && !r.received && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, context.DeadlineExceeded))
}

// connectAnyHello connects with a large ClientHello, and once more with a small one if a middlebox
// may have dropped the first.
func (d *Dialer) connectAnyHello(ctx context.Context, addrs []upstream.Address, offer []string) (Result, error) {
	r, err := d.connect(ctx, addrs, offer, false)
	if !lostHello(&r, err) || r.small || d.tls.small == nil || ctx.Err() != nil {
		return r, err
	}
	addr := addrs[r.At]
	size := d.hellos.sizeFor(addr.AddrPort)
	if size == takesNone {
		return r, err
	}
	again, errAgain := d.connect(ctx, addrs[r.At:r.At+1], offer, true)
	again.Raced = r.Raced
	if again.completed {
		d.stats.helloHelped.Add(1)
	}
	switch {
	case !again.completed:
		d.stats.helloFailed.Add(1)
		d.hellos.learn(addr.AddrPort, takesNone)
	case size != takesLarge:
		d.hellos.learn(addr.AddrPort, needsSmall)
		d.opts.Warn(fmt.Errorf("%s: a TLS handshake that offered post-quantum groups (MLKEM) got no byte from the server (%w); the next one, without them, succeeded. adbuffer leaves these groups out for this address for %v; tls.groups of the SSP sets which groups it offers", addr, err, helloFor[needsSmall]))
	}
	if !again.received {
		return r, err
	}
	return again, errAgain
}
