package ssp

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

const msec = time.Millisecond

// step is the result of one exchange on a place.
type step func(ex *exchange.Exchange) error

// fakePool is a pool whose places run the steps of a test. The first attempt runs the first of
// steps, and so on; the last step repeats.
type fakePool struct {
	steps   []step
	acquire func(n int, ex *exchange.Exchange) error // runs before the n-th place is acquired, from 0; nil: at once
	host    string
	// protocol is the protocol of its connections.
	protocol exchange.Protocol

	mu       sync.Mutex
	acquired int
	returned int
	sent     []sentRequest
	ended    []exchange.Result
	refusing atomic.Bool
	left     atomic.Uint64 // of Left
	aside    atomic.Bool   // of Ended
	busy     atomic.Int32  // exchanges in Do
	mostBusy atomic.Int32
}

// sentRequest is a request that a place had to send.
type sentRequest struct {
	method                          exchange.Method
	scheme, target, authority, head string
	body, avoided                   string
	ex                              *exchange.Exchange
	at                              time.Time
}

func (p *fakePool) Acquire(ex *exchange.Exchange) (place, error) {
	if ex.Times.Queued.IsZero() {
		ex.Times.Queued = time.Now()
	}
	p.mu.Lock()
	n := p.acquired
	p.acquired++
	p.mu.Unlock()
	ex.Times.Acquired, ex.Redialed = time.Time{}, 0
	if p.acquire != nil {
		if err := p.acquire(n, ex); err != nil {
			return nil, err
		}
	}
	ex.Times.Acquired = time.Now()
	return &fakePlace{p, p.steps[min(n, len(p.steps)-1)]}, nil
}

type fakePlace struct {
	pool *fakePool
	step step
}

func (p *fakePool) Refusing() bool { return p.refusing.Load() }

func (p *fakePool) Exclusions() uint64 { return p.left.Load() }

func (pl *fakePlace) Ended(_ exchange.Outcome, v exchange.Result, _ rates.Group, _ *exchange.Times) bool {
	pl.pool.mu.Lock()
	defer pl.pool.mu.Unlock()
	pl.pool.ended = append(pl.pool.ended, v)
	return v == exchange.Failure && pl.pool.aside.Load()
}

func (pl *fakePlace) Host() string { return pl.pool.host }

func (pl *fakePlace) Protocol() exchange.Protocol { return pl.pool.protocol }

func (pl *fakePlace) Release(*exchange.Exchange) {
	pl.pool.mu.Lock()
	defer pl.pool.mu.Unlock()
	pl.pool.returned++
}

func (pl *fakePlace) Do(ex *exchange.Exchange) error {
	p, r := pl.pool, &ex.Request
	p.mu.Lock()
	p.sent = append(p.sent, sentRequest{r.Method, r.Scheme, string(r.Target), string(r.Authority), string(r.Fields), string(r.Body), ex.Avoid, ex, time.Now()})
	p.mu.Unlock()
	if n := p.busy.Add(1); n > p.mostBusy.Load() {
		p.mostBusy.Store(n)
	}
	defer p.busy.Add(-1)
	err := pl.step(ex)
	ex.Times.Done = time.Now()
	return err
}

func (p *fakePool) requests() []sentRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent
}

// response responds at once. fields are lines without their line ends.
func response(status int, body string, fields ...string) step {
	return func(ex *exchange.Exchange) error {
		if err := ex.Reserve(len(body)); err != nil {
			return err
		}
		a := &ex.Response
		a.Status, a.ContentLength = status, len(body)
		a.Body = append(a.Body, body...)
		for _, f := range fields {
			a.Fields = append(append(a.Fields, f...), "\r\n"...)
		}
		ex.Times.FirstByte = time.Now()
		return nil
	}
}

func fill() step { return response(200, "an ad") }

// fail ends the exchange with a copy of e.
func fail(e exchange.Error) step {
	return func(*exchange.Exchange) error { return &e }
}

// after waits for d before the step then, unless the deadline or the context ends first.
func after(d time.Duration, then step) step {
	return func(ex *exchange.Exchange) error {
		if err := sleep(ex, d); err != nil {
			return err
		}
		return then(ex)
	}
}

// sleep waits for d, unless the exchange's deadline or context ends first.
func sleep(ex *exchange.Exchange, d time.Duration) error {
	timer, deadline := time.NewTimer(d), time.NewTimer(time.Until(ex.Deadline))
	defer timer.Stop()
	defer deadline.Stop()
	var cancelled <-chan struct{}
	if ex.Context != nil {
		cancelled = ex.Context.Done()
	}
	select {
	case <-timer.C:
		return nil
	case <-deadline.C:
		return exchange.ErrDeadline
	case <-cancelled:
		return exchange.ErrCancelled
	}
}

// never does not respond.
func never() step { return after(time.Hour, fill()) }

// These errors end an attempt.
var (
	notSent        = exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotSent, Detail: "scripted"}
	notProcessed   = exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Detail: "scripted"}
	stale          = exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, Stale: true, Detail: "scripted"}
	cutMidResponse = exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.MaybeProcessed, Detail: "scripted"}
	refused        = exchange.Error{Outcome: exchange.ConnectFailed, Progress: exchange.NotSent, Err: errors.New("connection refused")}
)

// options are the defaults of config/reference.yaml, as changed by with.
func options(with func(o *Options)) Options {
	o := Options{
		Name: "openx", Scheme: "https", Path: "/bid", Query: "v=2",
		Policy:     header.NewPolicy(header.PolicyOptions{Identity: header.None}),
		BlameAfter: 295 * msec, RetryMax: 1, RetryAfterMax: 30 * time.Second, MaxBufferedBytes: 1 << 20,
		Breaker:  BreakerOptions{Enabled: true, Window: 10 * time.Second, MinRequests: 20, FailureRatio: 0.5, MinProbe: 0.1},
		Hedge:    HedgeOptions{Quantile: 0.95},
		Compress: CompressOptions{MinBytes: 1024},
	}
	if with != nil {
		with(&o)
	}
	return o
}

// sameClient is the group of the client with which tests send requests.
var sameClient = new(header.Identity).Group()

// client sends requests to one SSP.
type client struct {
	t      testing.TB
	ssp    *SSP
	fields header.RequestFields
	id     header.Identity
	budget *exchange.Budget
	held   int64 // Held of its requests
}

func newClient(t *testing.T, p *fakePool, with func(o *Options)) *client {
	if p.host == "" {
		p.host = "rtb.openx.example:8443"
	}
	if len(p.steps) == 0 {
		p.steps = []step{fill()}
	}
	c := &client{t: t, ssp: newSSP(options(with), p), budget: exchange.NewBudget(1 << 20), held: 1000}
	c.head("Host: ads.example\r\nUser-Agent: phone\r\n\r\n")
	return c
}

func (c *client) head(raw string) {
	c.t.Helper()
	testsupport.NoError(c.t, c.fields.Scan([]byte(raw)))
}

// request returns a request that has just arrived and has a deadline of 295 ms.
func (c *client) request(m exchange.Method) *Request {
	now := time.Now()
	return &Request{Method: m, Fields: &c.fields, Identity: &c.id, Received: now, Deadline: now.Add(295 * msec), Budget: c.budget, Held: c.held}
}

// result is how Do ended.
type result struct {
	t       testing.TB
	outcome exchange.Outcome
	err     *exchange.Error
	status  int
	body    string
	times   exchange.Times
	took    time.Duration
}

// do sends r on its own exchange.
func (c *client) do(r *Request) result {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	return c.doOn(ex, r, 0)
}

func (c *client) doOn(ex *exchange.Exchange, r *Request, timeout time.Duration) result {
	ex.Times.Queued = r.Received
	start := time.Now()
	o, err := c.ssp.Do(r, ex, timeout)
	return result{c.t, o, err, ex.Response.Status, string(ex.Response.Body), ex.Times, time.Since(start)}
}

// getIn is get in a context, with a timeout of the call's own, 0 for none.
func (c *client) getIn(ctx context.Context, timeout time.Duration) result {
	ex := exchange.AcquireExchange()
	defer ex.Release()
	ex.Context = ctx
	return c.doOn(ex, c.request(exchange.GET), timeout)
}

// start gets n times at once.
func (c *client) start(n int) <-chan result {
	results := make(chan result, n)
	for range n {
		go func() { results <- c.get() }()
	}
	return results
}

// spendBudget takes all tokens for retries, and returns how many there were.
func (c *client) spendBudget() (n int) {
	for c.ssp.budget.spend(c.id.Group()) {
		n++
	}
	return n
}

// wantTokens checks how many retries the budget allows the client, and takes the tokens.
func (c *client) wantTokens(want int) {
	c.t.Helper()
	testsupport.Equal(c.t, c.spendBudget(), want, "%d tokens are left")
}

func (c *client) get() result { return c.do(c.request(exchange.GET)) }

func (r result) want(o exchange.Outcome) result {
	r.t.Helper()
	testsupport.MustTrue(r.t, r.outcome == o && (r.err == nil) == o.HasResponse(), "outcome %v (%v), want %v", r.outcome, r.err, o)
	testsupport.MustTrue(r.t, r.err == nil || r.err.Outcome == o, "the error is %v, want %v", r.err, o)
	return r
}

// wantDetail checks that the error names each of words.
func (r result) wantDetail(words ...string) {
	r.t.Helper()
	for _, w := range words {
		testsupport.True(r.t, strings.Contains(r.err.Error(), w), "%q does not name %q", r.err, w)
	}
}

// wantIdle checks that no request is in flight and no byte is reserved.
func (c *client) wantIdle() {
	c.t.Helper()
	testsupport.Equal(c.t, c.ssp.inFlight.Now(), 0, "%d requests are still in flight")
	n, share := c.budget.Used(), c.ssp.buffered.Used()
	testsupport.True(c.t, n == 0 && share == 0, "%d bytes of the budget, and %d of the SSP's share, are still held", n, share)
}

func (c *client) wantSent(p *fakePool, n int) {
	c.t.Helper()
	testsupport.MustEqual(c.t, len(p.requests()), n, "%d requests were sent")
	testsupport.Equal(c.t, c.ssp.stats.sent.Load(), uint64(n), "%d requests were counted as sent")
}

func (c *client) wantRetries(want map[retryKind]uint64) {
	c.t.Helper()
	for k := range retryKinds {
		testsupport.Equal(c.t, c.ssp.stats.retries[k].Load(), want[k], "%d retries %s", retryKindNames[k])
	}
}

// wantPauses checks how many responses with Retry-After paused the SSP, and how many did not.
func (c *client) wantPauses(paused, ignored int) {
	c.t.Helper()
	s := c.ssp.Snapshot()
	testsupport.True(c.t, s.RetryAfterPaused == uint64(paused) && s.RetryAfterIgnored == uint64(ignored), "%d responses paused the SSP and %d did not, want %d and %d", s.RetryAfterPaused, s.RetryAfterIgnored, paused, ignored)
}
