package pool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// testOptions returns the settings of a small HTTP/1 pool.
func testOptions() Options {
	return Options{
		SSP: "openx", MaxConns: 4, MaxHTTP2Conns: 2, MaxIdle: 4, IdleTimeout: 55 * time.Second,
		MaxPending: 10, PendingTimeout: 50 * time.Millisecond, MaxDials: 16,
		BackoffMin: 100 * time.Millisecond, BackoffMax: 5 * time.Second,
		ConnectTimeout: 250 * time.Millisecond, TLSTimeout: 500 * time.Millisecond,
		Protocol: exchange.HTTP1, PipelineDepth: 8, MaxStreams: 100,
		Endpoints: []balancer.Options{{Name: "ssp0.test:80", Weight: 1}},
		Ejection:  testEjection(),
	}
}

// testEjection returns the default settings.
func testEjection() balancer.Ejection {
	return balancer.Ejection{
		Enabled: true, Window: 10 * time.Second, MinRequests: 20, FailureRatio: 0.5, BaseTime: 5 * time.Second, MaxTime: 5 * time.Minute,
		Consecutive: 5, MaxEjected: 0.5,
	}
}

// start returns a pool. The end of the test closes and checks it.
func start(t testing.TB, s *fakeSSP, change func(*Options)) *Pool {
	t.Helper()
	o := testOptions()
	if change != nil {
		change(&o)
	}
	o.MaxIdle = max(o.MaxIdle, o.MinIdle)
	p := New(o, s)
	verifyEvents(t, p)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
		wantConsistent(t, p, s)
		if t.Failed() {
			return
		}
		testsupport.Equal(t, s.openCount(), 0, "after Close, %d connections are open")
	})
	return p
}

// inBubble runs test in a synctest bubble, with an SSP and a pool that start returns. The pool dials
// nothing before the test has told the SSP what to do.
func inBubble(t *testing.T, change func(*Options), test func(t *testing.T, s *fakeSSP, p *Pool)) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		test(t, s, start(t, s, change))
	})
}

// runInBubble is inBubble as a subtest.
func runInBubble(t *testing.T, name string, change func(*Options), test func(t *testing.T, s *fakeSSP, p *Pool)) {
	t.Run(name, func(t *testing.T) { inBubble(t, change, test) })
}

// withEndpoints is inBubble with an SSP of n endpoints.
func withEndpoints(t *testing.T, n int, change func(*Options), test func(t *testing.T, s *fakeSSP, p *Pool)) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := endpointsSSP(t, n)
		test(t, s, start(t, s, change))
	})
}

// request is one call of Acquire in its own goroutine.
type request struct {
	t     testing.TB
	ex    *exchange.Exchange
	began time.Time

	mu    sync.Mutex
	over  bool
	place Place
	err   error
	took  time.Duration
}

// ask starts a request with the given time to its deadline.
func ask(t testing.TB, p *Pool, deadline time.Duration) *request {
	return askWith(t, p, deadline, nil)
}

// askAll starts n requests, one after the other.
func askAll(t testing.TB, p *Pool, n int, deadline time.Duration) (all []*request) {
	for range n {
		all = append(all, ask(t, p, deadline))
	}
	return all
}

// askAfterLearning asks for request i of a series. The pool learns from the first ten, which must
// get their place within 310 ms. Later ones must get it within 10 ms.
func askAfterLearning(t testing.TB, p *Pool, i int) *request {
	t.Helper()
	r := ask(t, p, sec)
	pass(10 * msec)
	if i < 10 {
		pass(300 * msec)
	}
	testsupport.MustTrue(t, r.ended() && r.err == nil, "request %d: ended %v, %v", i, r.ended(), r.err)
	return r
}

func askWith(t testing.TB, p *Pool, deadline time.Duration, ctx context.Context) *request {
	return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Context: ctx, Deadline: time.Now().Add(deadline), Redials: 1}})
}

// askOnce is ask for a request that outlasts no failed dial.
func askOnce(t testing.TB, p *Pool, deadline time.Duration) *request {
	return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(deadline)}})
}

// askFor acquires a place for ex in a goroutine of its own. It returns when the request has its place or
// waits.
func askFor(t testing.TB, p *Pool, ex *exchange.Exchange) *request {
	r := &request{t: t, ex: ex, began: time.Now()}
	go func() {
		place, err := p.Acquire(r.ex)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.over, r.place, r.err, r.took = true, place, err, time.Since(r.began)
	}()
	synctest.Wait()
	return r
}

func (r *request) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// wantConn checks that the request got a place on connection n after took.
func (r *request) wantConn(n int, took time.Duration) {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.over:
		r.t.Fatal("the request still waits")
	case r.err != nil:
		r.t.Fatalf("the request got %v", r.err)
	case r.conn().n != n || r.took != took:
		r.t.Errorf("the request got connection %d after %v, want %d after %v", r.conn().n, r.took, n, took)
	}
}

// wantErr checks that the request got an error after took.
func (r *request) wantErr(o exchange.Outcome, took time.Duration) *exchange.Error {
	r.t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var e *exchange.Error
	switch {
	case !r.over:
		r.t.Fatalf("the request still waits, want %v", o)
	case r.err == nil:
		r.t.Fatalf("the request got connection %d, want %v", r.conn().n, o)
	case !errors.As(r.err, &e) || e.Outcome != o || e.Progress != exchange.NotSent:
		r.t.Errorf("the request got %v, want %v, not sent", r.err, o)
	case r.took != took:
		r.t.Errorf("the request got %v after %v, want it after %v", r.err, r.took, took)
	}
	return e
}

func (r *request) wantWaits() {
	r.t.Helper()
	synctest.Wait()
	if r.ended() { // otherwise its goroutine may write err
		r.t.Fatalf("the request does not wait: %v", r.err)
	}
}

// do runs the request's exchange on its place.
func (r *request) do() error { return r.place.Do(r.ex) }

// acquire acquires a place in the caller's goroutine.
func acquire(t testing.TB, p *Pool) *request {
	t.Helper()
	r := &request{t: t, began: time.Now(), ex: &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(time.Second), Redials: 1}}}
	r.place, r.err = p.Acquire(r.ex)
	r.over, r.took = true, time.Since(r.began)
	testsupport.MustTrue(t, r.err == nil, "no place: %v", r.err)
	return r
}

// acquireAll acquires n places, one after the other.
func acquireAll(t testing.TB, p *Pool, n int) (all []*request) {
	t.Helper()
	for range n {
		all = append(all, acquire(t, p))
	}
	return all
}

// doAll uses the places of the requests, which must all have got one.
func doAll(all []*request) {
	for i, r := range all {
		r.t.Helper()
		testsupport.MustTrue(r.t, r.ended() && r.err == nil, "request %d: ended %v, %v", i, r.ended(), r.err)
		r.do()
	}
}

// pass waits for d, and then until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// useAll uses the places of the requests until every request has got one. Each use may release a
// place for a waiting request.
func useAll(all []*request) {
	for len(all) > 0 {
		synctest.Wait()
		n := len(all)
		all = slices.DeleteFunc(all, func(r *request) bool {
			if !r.ended() {
				return false
			}
			if r.err != nil {
				r.t.Errorf("a request got %v", r.err)
				return true
			}
			r.do()
			return true
		})
		if n == len(all) {
			time.Sleep(time.Millisecond)
		}
	}
}
