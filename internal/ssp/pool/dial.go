package pool

import (
	"context"
	"time"

	"adbuffer/internal/wire/exchange"
)

// Dialed is a new connection with the durations of its dial.
type Dialed struct {
	Conn     exchange.Conn
	TCP, TLS time.Duration // TLS is 0 on cleartext
	// At says which address Conn leads to, or the error of Dial is about: 0 is addr, 1 is the first of
	// others. Lost holds the errors of the other addresses by that index, or is nil.
	At   int
	Lost []error
}

// Dialer finds an SSP and connects to it. Its methods are safe for concurrent use and return soon
// after ctx ends. Their errors are *exchange.Error with Progress NotSent.
type Dialer interface {
	// Addresses returns the addresses of all endpoints. Dials to an endpoint use its addresses in
	// turn, in this order. It is fast if it was called a short time ago, and otherwise
	// bounds its own time. The slice must not be changed, and stays the same while its contents do.
	Addresses(ctx context.Context) ([]exchange.Address, error)
	// Dial connects to addr or, if that fails or is slow, to one of others, which belong to the
	// same endpoint. It offers HTTP/2 only if offerHTTP2; Dialed.Conn.Protocol returns the
	// negotiated protocol. The connection calls owner when the number of its places changes,
	// perhaps before Dial returns. ctx ends when the time for a dial is over. Dial sets all of
	// Dialed except Conn even if it fails.
	Dial(ctx context.Context, addr exchange.Address, others []exchange.Address, offerHTTP2 bool, owner exchange.Owner) (Dialed, error)
}

// dialDurations holds how long the parts of a dial took.
type dialDurations struct{ dns, tcp, tls time.Duration }

// dial opens o's connection and adds it to the pool.
func (p *Pool) dial(o dialOrder) {
	var r dialOutcome
	var err error
	r.to, r.took.dns, err = p.nextAddress(o.to)
	r.reached, r.err = r.to, err
	if err == nil {
		var d Dialed
		d, r.err = p.connect(o.m, r.to, o.offerHTTP2)
		r.took.tcp, r.took.tls, r.lost, r.reached = d.TCP, d.TLS, d.Lost, r.to.nth(d.At)
		o.m.addr, o.m.ep = r.reached.addr, r.to.endpoint
		p.stats.dialed(r.took)
	}
	now := time.Now()

	p.mu.Lock()
	defer p.end(now)
	p.opts.Lag.Stop()
	p.dialOver(o, r, now)
}

// nextAddress looks the SSP up and picks the next address to dial. The look-up is usually fast.
func (p *Pool) nextAddress(want aim) (to target, took time.Duration, err error) {
	p.mu.Lock()
	failures := p.governor.lookup.failures
	p.mu.Unlock()
	began := time.Now()
	addrs, err := p.dialer.Addresses(p.ctx)
	now := time.Now()

	p.mu.Lock()
	defer p.end(now)
	to, err = p.lookedUp(want, addrs, err, failures, now)
	return to, now.Sub(began), err
}

// dialGrace is how long the pool waits beyond the dialer's own timeouts. The dialer's error names
// the step that took too long.
const dialGrace = 10 * time.Millisecond

// connect dials to and stores the connection in m.
func (p *Pool) connect(m *member, to target, offerHTTP2 bool) (Dialed, error) {
	o := p.Options()
	ctx, cancel := o.Lag.WithTimeout(p.ctx, o.dialLimit()+dialGrace)
	defer cancel()
	d, err := p.dialer.Dial(ctx, to.addr, to.others, offerHTTP2, m)
	if err == nil {
		m.conn, m.protocol = d.Conn, d.Conn.Protocol()
		m.single = m.single && m.protocol == exchange.HTTP2
	}
	return d, err
}
