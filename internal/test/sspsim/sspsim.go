// Package sspsim holds simulated SSPs for the demo, tests and load tests.
//
// An SSP listens on a real socket and uses HTTP/1 or HTTP/2. It responds to bid requests as its
// Behaviour says, fails as real SSPs do, and counts its requests and faults. It checks requests
// strictly by RFC 9112 and RFC 9113, since they are under test.
package sspsim

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Protocol is the protocol of an SSP.
type Protocol string

// The protocols.
const (
	HTTP1      Protocol = "http1"       // HTTP/1.0 and 1.1, cleartext; the default
	H2C        Protocol = "h2c"         // HTTP/2 with prior knowledge, cleartext
	TLSAuto    Protocol = "tls"         // TLS; HTTP/2 or HTTP/1.1 by ALPN
	TLSHTTP2   Protocol = "tls-h2"      // TLS; ALPN offers HTTP/2 only
	TLSHTTP1   Protocol = "tls-http1"   // TLS; ALPN offers HTTP/1.1 only
	TLSWithout Protocol = "tls-no-alpn" // TLS; ALPN is ignored, the protocol is HTTP/1
)

// maxRequestBody is the size in bytes of the largest body of a request. A larger body gets 413.
const maxRequestBody = 1 << 20

// maxConnections bounds the connections that are open at once. The SSP closes further ones directly
// after accept.
const maxConnections = 65536

// Options are fixed for the lifetime of an SSP. The zero value is a healthy cleartext HTTP/1 SSP on
// a free port of 127.0.0.1.
type Options struct {
	// Addr to listen on, host:port; "" is 127.0.0.1 with a free port.
	Addr string
	// Control is where the control endpoint listens, a loopback host:port; ""
	// starts none.
	Control string
	// Protocol; "" is HTTP1.
	Protocol Protocol
	// RequireClientCert fails handshakes without a certificate of SSP.CA.
	RequireClientCert bool
	// ExtraCertificates are DER certificates that follow the SSP's own one in TLS handshakes.
	ExtraCertificates [][]byte
	// Behaviour at the start.
	Behaviour Behaviour
	// Seed of the random draws. Each connection has its own generator, seeded with this seed and
	// the connection's number, so equal traffic gets equal draws. 0 is a valid seed.
	Seed uint64
	// Record is how many of the last requests are kept for Requests; 0 keeps none.
	Record int
	// OnRequest is called with each whole request, before its latency and its response: on the
	// connection's goroutine in HTTP/1, on the stream's in HTTP/2. It may block, which delays the
	// response. It must return before Close can.
	OnRequest func(*Request)
	// OnUnprocessed is called with the target of each request that Counters.Unprocessed counts. It must
	// not call the SSP.
	OnUnprocessed func(target string)
}

// SSP is a running simulated SSP. Its methods are safe for concurrent use.
type SSP struct {
	opts    Options       // defaults applied; set once in Start
	ca      *CA           // set once in Start; nil without TLS
	tls     *tls.Config   // set once in Start; nil without TLS
	control *http.Server  // set once in Start; nil without a control endpoint
	done    chan struct{} // closed by Close

	plan atomic.Pointer[script]

	counting sync.Mutex // guards the fields below
	counters Counters
	second   int64  // when the last request was counted, in seconds since 1970
	inSecond uint64 // requests in that second

	setMu sync.Mutex // serialises Set and Close; taken before mu
	gate  *gate

	mu       sync.Mutex         // guards the fields below; never held across I/O
	conns    map[*conn]struct{} // open connections
	lastID   uint64             // of the newest connection
	closed   bool               // once true, conns only shrinks
	recorded []*Request         // the last Options.Record requests

	wg sync.WaitGroup // every goroutine of the SSP
}

// Start starts an SSP. The error is an *InvalidError that lists every bad option, or the listener's
// error. The caller closes the SSP.
func Start(o Options) (*SSP, error) {
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	o.Protocol = cmp.Or(o.Protocol, HTTP1)
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &SSP{opts: o, done: make(chan struct{}), conns: map[*conn]struct{}{}}
	s.ResetCounters()
	if o.Protocol != HTTP1 && o.Protocol != H2C {
		if err := s.prepareTLS(); err != nil {
			return nil, fmt.Errorf("sspsim: TLS: %w", err)
		}
	}
	var err error
	s.gate, err = openGate(o.Addr, func(ln *net.TCPListener) { s.wg.Go(func() { s.serve(ln) }) })
	if err != nil {
		return nil, fmt.Errorf("sspsim: %w", err)
	}
	if err := s.Set(o.Behaviour); err != nil {
		s.Close()
		return nil, fmt.Errorf("sspsim: %w", err)
	}
	if o.Control != "" {
		if err := s.startControl(); err != nil {
			s.Close()
			return nil, fmt.Errorf("sspsim: control endpoint: %w", err)
		}
	}
	return s, nil
}

func (o *Options) validate() error {
	var e InvalidError
	switch o.Protocol {
	case HTTP1, H2C, TLSAuto, TLSHTTP2, TLSHTTP1, TLSWithout:
	default:
		e.add("Protocol", "%q is not one of http1, h2c, tls, tls-h2, tls-http1, tls-no-alpn", o.Protocol)
	}
	within(&e, "Record", o.Record, 0, 1<<20)
	if o.Control != "" && !isLoopbackAddr(o.Control) {
		e.add("Control", "%q is not a loopback host:port; any client that reaches it can change the SSP", o.Control)
	}
	if o.RequireClientCert && (o.Protocol == HTTP1 || o.Protocol == H2C) {
		e.add("RequireClientCert", "needs TLS, and Protocol is %q", o.Protocol)
	}
	o.Behaviour.check(&e, "Behaviour.")
	return e.orNil()
}

// Addr returns the SSP's listening address, host:port.
func (s *SSP) Addr() string { return s.gate.keeper.Addr().String() }

// URL returns the URL for bid requests. The SSP responds on every other path too.
func (s *SSP) URL() string {
	scheme := "http"
	if s.tls != nil {
		scheme = "https"
	}
	return scheme + "://" + s.Addr() + "/bid"
}

// Behaviour returns the current behaviour.
func (s *SSP) Behaviour() Behaviour { return s.plan.Load().Behaviour.clone() }

// Set makes b the current behaviour, or returns an *InvalidError and changes nothing. It restarts
// the counts of every Chance.
func (s *SSP) Set(b Behaviour) error {
	s.setMu.Lock()
	defer s.setMu.Unlock()
	return s.setLocked(b)
}

func (s *SSP) setLocked(b Behaviour) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if s.gate.state == gateClosed {
		return net.ErrClosed
	}
	s.plan.Store(newScript(b))
	state := gateOpen
	switch {
	case b.Faults.Refuse:
		state = gateRefusing
	case b.Faults.BlackHole:
		state = gateBlackHole
	}
	err := s.gate.set(state)
	for _, c := range s.openConns() {
		c.apply()
	}
	return err
}

func (s *SSP) openConns() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.conns))
}

// CloseConnections closes every open connection at once, in any state. New ones are accepted as
// before.
func (s *SSP) CloseConnections() {
	for _, c := range s.openConns() {
		_ = c.tcp.Close()
	}
}

// Close stops listening, closes every connection and returns when all goroutines of the SSP have
// ended. Further calls only wait for that.
func (s *SSP) Close() error {
	s.setMu.Lock()
	first := s.gate.state != gateClosed
	if first {
		s.gate.close()
		close(s.done)
	}
	s.setMu.Unlock() // before the wait for the control endpoint: its handlers call Set
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.CloseConnections()
	var err error
	if first && s.control != nil {
		err = s.control.Close()
	}
	s.wg.Wait()
	return err
}

// serve accepts connections until ln closes.
func (s *SSP) serve(ln *net.TCPListener) {
	for {
		tcp, err := ln.AcceptTCP()
		switch {
		case err == nil:
			s.wg.Go(func() { s.handle(tcp) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // the process has no descriptor left
			s.waitFor(5*time.Millisecond, nil)
		}
	}
}

// track makes the conn of a new connection. It returns nil if the connection must be closed at
// once.
func (s *SSP) track(tcp *net.TCPConn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConnections {
		return nil
	}
	s.lastID++
	c := &conn{ssp: s, id: s.lastID, tcp: tcp, rw: tcp,
		rng: mathrand.New(mathrand.NewPCG(s.opts.Seed, s.lastID))}
	s.conns[c] = struct{}{}
	s.count(func(c *Counters) {
		c.Connections++
		c.OpenConnections++
	})
	return c
}

func (s *SSP) untrack(c *conn) {
	_ = c.tcp.Close()
	c.mu.Lock()
	c.closing = true // the timers do nothing more
	c.mu.Unlock()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.count(func(c *Counters) { c.OpenConnections-- })
}

// AwaitCounters waits until ok accepts the counters. It returns false if that takes longer than the
// timeout.
func (s *SSP) AwaitCounters(timeout time.Duration, ok func(Counters) bool) bool {
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		if ok(s.Counters()) {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// isLoopbackAddr reports whether addr is host:port with a loopback host.
func isLoopbackAddr(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}
