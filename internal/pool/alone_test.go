package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// pipelined sets up a pool of up to two pipelined connections with four places each.
func pipelined(o *Options) {
	o.Protocol, o.PipelineDepth, o.MaxConns = upstream.HTTP1Pipelined, 4, 2
}

func newPipelinedSSP(t testing.TB) *fakeSSP {
	s := newFakeSSP(t)
	s.always(dialResult{after: 10 * msec, protocol: upstream.HTTP1Pipelined, places: 4})
	return s
}

// acquireAlone acquires a place for an exchange that must be alone.
func acquireAlone(p *Pool, deadline time.Duration) (Place, error) {
	ex := upstream.AcquireExchange()
	ex.Deadline, ex.Alone = time.Now().Add(deadline), true
	return p.Acquire(ex)
}

func TestRequestThatMustBeAloneSharesNoPipelinedConnection(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := start(t, newPipelinedSSP(t), func(o *Options) { pipelined(o); o.MaxConns, o.PendingTimeout = 1, time.Second })
		place, err := acquireAlone(p, time.Second)
		testsupport.NoError(t, err)
		behind := ask(t, p, time.Second)
		behind.wantWaits() // the pool puts no request behind the request that must be alone
		place.Release(new(upstream.Exchange))
		synctest.Wait()
		testsupport.MustTrue(t, behind.ended() && behind.err == nil, "the waiting request was not served: %v", behind.err)

		// A request that must be alone waits until the connection is empty. Later requests wait
		// too, so that the connection becomes empty.
		type result struct {
			place Place
			err   error
		}
		alone := make(chan result, 1)
		go func() {
			pl, err := acquireAlone(p, time.Second)
			alone <- result{pl, err}
		}()
		synctest.Wait()
		later := ask(t, p, time.Second)
		later.wantWaits()
		select {
		case <-alone:
			t.Fatal("the request got a place although another exchange was outstanding")
		default:
		}
		behind.place.Release(behind.ex)
		r := <-alone
		testsupport.NoError(t, r.err)
		later.wantWaits()
		r.place.Release(new(upstream.Exchange))
		synctest.Wait()
		testsupport.MustTrue(t, later.ended() && later.err == nil, "the waiting request was not served: %v", later.err)
	})
}

func TestRequestThatMustBeAloneSharesHTTP2(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := start(t, newHTTP2SSP(t), func(o *Options) { multiplexed(o); o.MaxHTTP2Conns = 1 })
		acquire(t, p)
		place, err := acquireAlone(p, 20*msec)
		testsupport.MustTrue(t, err == nil, "the request got no place, but an HTTP/2 stream is always alone: %v", err)
		place.Release(new(upstream.Exchange))
	})
}

// Each of these requests needs its own connection. So the pool dials one for each at once, and no
// further requests count as waiting for dials.
func TestEachRequestThatMustBeAloneGetsADial(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newPipelinedSSP(t)
		p := start(t, s, func(o *Options) { pipelined(o); o.MaxConns, o.MaxPending = 6, 1 })
		places, errs := make(chan Place, 8), make(chan error, 8)
		for range 8 {
			go func() {
				place, err := acquireAlone(p, 20*msec)
				if err != nil {
					errs <- err
					return
				}
				places <- place
			}()
		}
		synctest.Wait()
		testsupport.Equal(t, s.dialCount(), 6, "%d dials for eight requests that must be alone, want max_conns, 6")
		if err := <-errs; upstream.AsError(err).Outcome != upstream.PendingFull {
			t.Errorf("the eighth request got %v", err)
		}
		pass(10 * msec)
		for range 6 {
			(<-places).Release(new(upstream.Exchange))
		}
		(<-places).Release(new(upstream.Exchange))
	})
}
