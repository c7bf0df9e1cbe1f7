package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// pipelined sets up a pool of up to two pipelined connections with four places each.
func pipelined(o *Options) {
	o.Protocol, o.PipelineDepth, o.MaxConns = exchange.HTTP1Pipelined, 4, 2
}

func newPipelinedSSP(t testing.TB) *fakeSSP {
	return newFakeSSP(t, dialResult{after: 10 * msec, protocol: exchange.HTTP1Pipelined, places: 4})
}

// askAlone starts a request that must be alone.
func askAlone(t testing.TB, p *Pool, deadline time.Duration) *request {
	return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(deadline), Alone: true}})
}

// wantPlace checks that the request has a place, and releases the place unused.
func (r *request) wantPlace() {
	r.t.Helper()
	synctest.Wait()
	testsupport.MustTrue(r.t, r.ended() && r.err == nil, "the request was not served: %v", r.err)
	r.place.Release(r.ex)
}

func TestRequestThatMustBeAloneSharesNoPipelinedConnection(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := start(t, newPipelinedSSP(t), func(o *Options) { pipelined(o); o.MaxConns, o.PendingTimeout = 1, sec })
		first := askAlone(t, p, sec)
		pass(20 * msec)
		behind := ask(t, p, sec)
		behind.wantWaits() // the pool puts no request behind the request that must be alone
		first.wantPlace()
		synctest.Wait()
		testsupport.MustTrue(t, behind.ended() && behind.err == nil, "the waiting request was not served: %v", behind.err)

		// A request that must be alone waits until the connection is empty. Later requests wait
		// too, so that the connection becomes empty.
		alone, later := askAlone(t, p, sec), ask(t, p, sec)
		alone.wantWaits()
		later.wantWaits()
		behind.wantPlace()
		later.wantWaits()
		alone.wantPlace()
		later.wantPlace()
	})
}

func TestRequestThatMustBeAloneSharesHTTP2(t *testing.T) {
	overHTTP2(t, func(o *Options) { o.MaxHTTP2Conns = 1 }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		acquire(t, p)
		askAlone(t, p, 20*msec).wantPlace() // an HTTP/2 stream is always alone
	})
}

// Each of these requests needs its own connection. So the pool dials one for each at once, and no
// further requests count as waiting for dials.
func TestEachRequestThatMustBeAloneGetsADial(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newPipelinedSSP(t)
		p := start(t, s, func(o *Options) { pipelined(o); o.MaxConns, o.MaxPending = 6, 1 })
		var all []*request
		for range 8 {
			all = append(all, askAlone(t, p, 20*msec))
		}
		testsupport.Equal(t, s.dialCount(), 6, "%d dials for eight requests that must be alone")
		all[7].wantErr(exchange.PendingFull, 0)
		pass(10 * msec)
		for _, r := range all[:7] {
			r.wantPlace()
		}
	})
}
