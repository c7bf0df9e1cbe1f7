package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/machine/rates"
	"adbuffer/internal/wire/exchange"
)

// HealthCheck are the settings of active health checks: a GET to each endpoint at each interval. Package
// config says what the tags mean.
type HealthCheck struct {
	Path      string        `yaml:"path" form:"exact path"` // "" = no checks
	Interval  time.Duration `yaml:"interval" default:"5s" min:"100ms" max:"1h"`
	Timeout   time.Duration `yaml:"timeout" default:"1s" min:"1ms" max:"1h"`
	Unhealthy int           `yaml:"unhealthy" default:"3" min:"1" max:"1000"` // failures in a row
	Healthy   int           `yaml:"healthy" default:"2" min:"1" max:"1000"`   // successes in a row
	// Paused checks nothing, and leaves the endpoints in their states.
	Paused bool `yaml:"-"`
	// Scheme and Host are those of the SSP's requests. An empty Host is the endpoint's.
	Scheme string `yaml:"-"`
	Host   string `yaml:"-"`
}

// on reports whether endpoints are checked now.
func (o *HealthCheck) on() bool { return o.Path != "" && !o.Paused }

// checker runs the health checks of a pool's endpoints: a goroutine for each endpoint, with at most
// one connection. The connections do not count in the pool, and follow none of its limits. Guarded by
// Pool.mu.
type checker struct {
	pool    *Pool
	opts    HealthCheck
	running map[*endpoint]*check
}

// set applies settings: it starts and stops checks. Checks whose settings did not change continue.
func (c *checker) set(o HealthCheck, all []*endpoint) {
	changed := o != c.opts
	c.opts = o
	for e, k := range c.running {
		if changed || !slices.Contains(all, e) {
			k.stop()
			delete(c.running, e)
		}
	}
	if !o.on() {
		return
	}
	for _, e := range all {
		if c.running[e] != nil {
			continue
		}
		k := &check{pool: c.pool, endpoint: e, opts: o, soon: make(chan struct{}, 1)}
		var ctx context.Context
		ctx, k.stop = context.WithCancel(c.pool.ctx)
		c.running[e] = k
		c.pool.wg.Go(func() { k.run(ctx) })
	}
}

// checkSoon makes the next check of e begin at once, if e is checked.
func (c *checker) checkSoon(e *endpoint) {
	k := c.running[e]
	if k == nil {
		return
	}
	select {
	case k.soon <- struct{}{}:
	default: // it begins soon anyway
	}
}

// check checks one endpoint again and again. Only its goroutine uses the fields of the connection.
type check struct {
	pool     *Pool
	endpoint *endpoint
	opts     HealthCheck
	stop     context.CancelFunc
	soon     chan struct{}

	conn     exchange.Conn // nil = none
	addr     exchange.Address
	opened   time.Time
	version  int // Options.ConnVersion
	requests int // on conn
	turn     int // index of the next address
}

// checkBudget bounds the body of a check's response.
const checkBudget = 64 << 10

// run checks until ctx ends. The first check begins at a random moment of the first interval, and
// later intervals vary by 10 %, so that replicas do not check in step.
func (k *check) run(ctx context.Context) {
	defer k.close()
	timer := time.NewTimer(rand.N(k.opts.Interval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.soon:
		case <-timer.C:
		}
		timer.Reset(rates.Jitter(k.opts.Interval, 0.1))
		now, ok := k.pool.checkNow(k.endpoint)
		if !ok {
			k.close()
			continue
		}
		err := k.once(ctx, now)
		switch {
		case ctx.Err() != nil:
			return
		case !errors.Is(err, lag.ErrTooMuch):
			k.pool.checkEnded(k.endpoint, err)
		}
	}
}

// checkNow is what a check needs to know about its pool when it begins.
type checkNow struct {
	version    int // Options.ConnVersion
	maxAge     time.Duration
	offerHTTP2 bool
	lag        *lag.Meter
}

// checkNow returns false if the endpoint is not to be checked now.
func (p *Pool) checkNow(e *endpoint) (checkNow, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return checkNow{
		version: p.opts.ConnVersion, maxAge: p.opts.MaxAge, lag: p.opts.Lag,
		offerHTTP2: p.opts.Protocol == exchange.HTTP2 || p.opts.Protocol == exchange.Unknown && !p.demotion.on(time.Now()),
	}, p.conns.endpoints.Checks(e.Endpoint)
}

// checkEnded records the result of a health check of e.
func (p *Pool) checkEnded(e *endpoint, err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.end(now)
	if p.conns.closed || !p.opts.HealthCheck.on() || !p.conns.endpoints.Checks(e.Endpoint) || isLocal(err) {
		return
	}
	e.stats.checkEnded(err)
	p.changes.apply(e, p.conns.endpoints.CheckEnded(e.Endpoint, err, now))
	p.conns.due |= dueRevive
}

// once makes one check: look-up, dial, request and response within the timeout. If the SSP has just
// closed the kept connection, once tries a new one.
func (k *check) once(ctx context.Context, now checkNow) error {
	ctx, cancel := now.lag.WithTimeout(ctx, k.opts.Timeout)
	defer cancel()
	err := k.connect(ctx, now)
	if err == nil {
		err = k.exchange(ctx)
		if k.requests > 1 && err != nil && closedMeanwhile(exchange.AsError(err)) {
			k.close()
			err = k.connect(ctx, now)
			if err == nil {
				err = k.exchange(ctx)
			}
		}
	}
	if err == nil {
		return nil
	}
	k.close() // the next check tries another address
	switch ended := ctx.Err(); {
	case ended == nil:
		return err
	case errors.Is(ended, context.DeadlineExceeded):
		return fmt.Errorf("no response within %v; see health_check.timeout", k.opts.Timeout)
	default:
		return ended
	}
}

// connect ensures that conn is usable, and leads to a current address of the endpoint.
func (k *check) connect(ctx context.Context, now checkNow) error {
	all, err := k.pool.dialer.Addresses(ctx)
	if err != nil {
		return err
	}
	addrs := slices.DeleteFunc(slices.Clone(all), func(a exchange.Address) bool { return a.Name != k.endpoint.Name && a.Name != "" })
	if len(addrs) == 0 {
		return errNoAddress
	}
	if k.conn != nil && k.usable(addrs, now) {
		return nil
	}
	k.close()
	at := k.turn % len(addrs)
	k.turn = at + 1
	addrs = slices.Concat(addrs[at:], addrs[:at])
	d, err := k.pool.dialer.Dial(ctx, addrs[0], addrs[1:min(len(addrs), 1+maxOthers)], now.offerHTTP2, noOwner{})
	if err != nil {
		return err
	}
	k.conn, k.addr, k.opened, k.version, k.requests = d.Conn, addrs[d.At], time.Now(), now.version, 0
	return nil
}

func (k *check) usable(addrs []exchange.Address, now checkNow) bool {
	return k.version == now.version && (now.maxAge <= 0 || time.Since(k.opened) < now.maxAge) && slices.Contains(addrs, k.addr) &&
		k.conn.CloseReason() == exchange.NotClosed && (k.conn.Protocol() != exchange.HTTP1 || k.conn.Idle())
}

// exchange sends the request on conn. Its error says why the response is not healthy.
func (k *check) exchange(ctx context.Context) error {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	host := k.opts.Host
	if host == "" {
		host = k.addr.Authority
	}
	ex.Request = exchange.Request{
		Method: exchange.GET, Scheme: k.opts.Scheme, Authority: []byte(host), Target: []byte(k.opts.Path),
		Fields: []byte("User-Agent: adbuffer\r\nAccept: */*\r\n"),
	}
	ex.Times.Acquired = time.Now()
	ex.Deadline = ex.Times.Acquired.Add(k.opts.Timeout + lag.MostExtra) // ctx ends earlier
	ex.Context, ex.Alone, ex.Share = ctx, true, exchange.NewBudget(checkBudget)
	k.requests++
	if err := k.conn.Do(ex); err != nil {
		if exchange.AsError(err).Outcome == exchange.Overloaded {
			return fmt.Errorf("the body of the response is over %d bytes, the limit of a health check", checkBudget)
		}
		return err
	}
	if s := ex.Response.Status; s < 200 || s > 399 {
		return fmt.Errorf("status %d", s)
	}
	return nil
}

// closedMeanwhile reports whether the SSP closed a kept connection, or was about to, when a request
// was sent on it.
func closedMeanwhile(e *exchange.Error) bool { return e.Stale || e.Progress != exchange.MaybeProcessed }

func (k *check) close() {
	if k.conn != nil {
		k.conn.Close(exchange.ClosedDrain)
		k.conn = nil
	}
}

// noOwner is the owner of a check's connection, which is in no pool.
type noOwner struct{}

func (noOwner) Freed(time.Duration, exchange.Ticket) {}
func (noOwner) Changed()                             {}
