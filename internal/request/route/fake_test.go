package route

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

const ms = time.Millisecond

// reply is a fake SSP's reaction to a request. With the zero reply it never responds.
type reply struct {
	after  time.Duration
	status int    // 0: no response
	fields string // lines
	body   string
	err    *exchange.Error // in place of a response
	panics bool            // when the body has arrived
	// stubborn is how long the connection keeps a cancelled exchange. It reads the request during
	// that time.
	stubborn time.Duration
}

func fills(after time.Duration, body string) reply {
	return reply{after: after, status: 200, body: body}
}

func responses(after time.Duration, status int) reply {
	r := reply{after: after, status: status}
	if status != 204 {
		r.body = "no ad for you"
	}
	return r
}

func fails(after time.Duration, o exchange.Outcome) reply {
	return reply{after: after, err: &exchange.Error{Outcome: o, Progress: exchange.MaybeProcessed}}
}

// silent does not respond.
var silent = reply{}

// receivedRequest is a request as the SSP received it.
type receivedRequest struct {
	at                           time.Time
	method, target, fields, body string
}

// fakeSSP is a real SSP on a real pool with fake connections.
type fakeSSP struct {
	*ssp.SSP
	t    testing.TB
	pool *pool.Pool

	// script, if set, returns the reply to each request.
	script func(ex *exchange.Exchange) reply
	// dialTakes is how long a connection takes to open.
	dialTakes time.Duration
	// quiet disables the record of requests.
	quiet bool

	mu       sync.Mutex
	reply    reply
	received []receivedRequest
	torn     int // requests that changed while the connection read them
}

func newFake(t testing.TB, name string, r reply, change ...func(*ssp.Options)) *fakeSSP {
	t.Helper()
	f := &fakeSSP{t: t, reply: r}
	f.pool = pool.New(pool.Options{
		SSP: name, MaxConns: 1, MaxHTTP2Conns: 1, MaxIdle: 1, MaxPending: 100, PendingTimeout: time.Second, MaxDials: 1,
		BackoffMin: ms, BackoffMax: ms, ConnectTimeout: time.Second, Protocol: exchange.HTTP2, MaxStreams: 1 << 20,
	}, f)
	o := ssp.Options{Name: name, Scheme: "http", Path: "/bid", Policy: header.NewPolicy(header.PolicyOptions{Pass: []string{"Cookie"}})}
	for _, c := range change {
		c(&o)
	}
	f.SSP = ssp.New(o, f.pool)
	t.Cleanup(func() {
		f.pool.Close(context.Background())
		testsupport.Equal(t, f.Snapshot().BufferedBytes, 0, "%d bytes of %s's share are still held", name)
	})
	return f
}

func (f *fakeSSP) Addresses(context.Context) ([]exchange.Address, error) {
	return []exchange.Address{{Endpoint: exchange.Endpoint{Authority: "ssp.test"}, AddrPort: netip.MustParseAddrPort("127.0.0.1:80")}}, nil
}

func (f *fakeSSP) Dial(_ context.Context, _ exchange.Address, _ []exchange.Address, _ bool, owner exchange.Owner) (pool.Dialed, error) {
	time.Sleep(f.dialTakes)
	return pool.Dialed{Conn: &fakeConn{ssp: f, owner: owner}}, nil
}

// requests returns the requests that the SSP has received.
func (f *fakeSSP) requests() []receivedRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received
}

// wantRequests checks how many requests the SSP has received.
func (f *fakeSSP) wantRequests(n int) {
	f.t.Helper()
	got := len(f.requests())
	testsupport.True(f.t, got == n, "%s received %d requests, want %d", f.Name(), got, n)
}

// fakeConn is a connection of an SSP, with many places.
type fakeConn struct {
	ssp    *fakeSSP
	owner  exchange.Owner
	mu     sync.Mutex
	reason exchange.CloseReason
}

func (c *fakeConn) Protocol() exchange.Protocol { return exchange.HTTP2 }
func (c *fakeConn) Idle() bool                  { return true }

func (c *fakeConn) Places() int {
	if c.CloseReason() != exchange.NotClosed {
		return 0
	}
	return 1 << 20
}

func (c *fakeConn) Close(r exchange.CloseReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == exchange.NotClosed {
		c.reason = r
	}
}

func (*fakeConn) IdleLimit() time.Duration { return exchange.NoIdleLimit }

func (c *fakeConn) CloseReason() exchange.CloseReason {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// Do reads the request at its start and at its end, to check that it has not changed.
func (c *fakeConn) Do(ex *exchange.Exchange) error {
	defer c.owner.Freed(0, ex.Ticket)
	f := c.ssp
	r := f.note(ex)
	before := ""
	if !f.quiet {
		before = requestText(ex)
	}
	err := c.wait(ex, &r)
	if !f.quiet && requestText(ex) != before {
		f.mu.Lock()
		f.torn++
		f.mu.Unlock()
	}
	ex.Times.Done = time.Now()
	if err != nil {
		return err
	}
	ex.Times.FirstByte = ex.Times.Done
	if r.err != nil {
		return r.err
	}
	if err := ex.Reserve(len(r.body)); err != nil {
		return err
	}
	if r.panics {
		panic("the connection is broken")
	}
	a := &ex.Response
	a.Status, a.ContentLength = r.status, len(r.body)
	a.Fields = append(a.Fields, r.fields...)
	a.Body = append(a.Body, r.body...)
	return nil
}

// note records the request and returns the reply to it.
func (f *fakeSSP) note(ex *exchange.Exchange) reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.reply
	if f.script != nil {
		r = f.script(ex)
	}
	if !f.quiet {
		q := &ex.Request
		f.received = append(f.received, receivedRequest{time.Now(), q.Method.String(), string(q.Target), string(q.Fields), string(q.Body)})
	}
	return r
}

func requestText(ex *exchange.Exchange) string {
	q := &ex.Request
	return strings.Join([]string{q.Method.String(), string(q.Target), string(q.Authority), string(q.Fields), string(q.Body)}, "\n")
}

func (c *fakeConn) wait(ex *exchange.Exchange, r *reply) error {
	if r.after == 0 && (r.status != 0 || r.err != nil || r.panics) {
		return nil
	}
	var cancelled <-chan struct{}
	if ex.Context != nil {
		cancelled = ex.Context.Done()
	}
	deadline := time.NewTimer(time.Until(ex.Deadline))
	defer deadline.Stop()
	var ready <-chan time.Time
	if r.status != 0 || r.err != nil || r.panics {
		t := time.NewTimer(r.after)
		defer t.Stop()
		ready = t.C
	}
	select {
	case <-ready:
		return nil
	case <-deadline.C:
		return exchange.ErrDeadline
	case <-cancelled:
		time.Sleep(r.stubborn)
		return exchange.ErrCancelled
	}
}

// counted returns how many requests to the SSP ended as o.
func (f *fakeSSP) counted(o exchange.Outcome) int { return int(f.Snapshot().Outcomes[o.String()]) }

// wantCounted checks that all of the SSP's requests ended as o.
func (f *fakeSSP) wantCounted(want map[exchange.Outcome]int) {
	f.t.Helper()
	for o := range exchange.Outcomes {
		got := f.counted(o)
		testsupport.True(f.t, got == want[o], "%s: %d requests ended as %v, want %d", f.Name(), got, o, want[o])
	}
}
