package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestWarmReturnsOnceMinIdleConnectionsAreOpen(t *testing.T) {
	inBubble(t, func(o *Options) { o.MinIdle = 3 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult { return dialResult{after: time.Duration(c.n+1) * 10 * msec} })
		testsupport.True(t, !p.Ready(), "ready before any connection is open")
		began := time.Now()
		testsupport.NoError(t, p.Warm(t.Context()))
		took := time.Since(began)
		testsupport.True(t, took == 30*msec && s.openCount() == 3, "Warm returned after %v with %d connections, want 30ms and 3", took, s.openCount())
		testsupport.True(t, p.Ready(), "not ready")
	})
}

func TestWarmReturnsAtOnceWithoutMinIdle(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		err := p.Warm(t.Context())
		testsupport.True(t, err == nil && p.Ready() && s.dialCount() == 0, "%v, ready %v, %d dials", err, p.Ready(), s.dialCount())
	})
}

// A pool that an operator drained or disabled opens no connections, so Warm does not wait for them.
func TestWarmReturnsOnceTheSSPIsDrainedByHand(t *testing.T) {
	inBubble(t, func(o *Options) { o.MinIdle = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(0)
		time.AfterFunc(sec, func() { p.SetState(balancer.Draining) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*sec)
		defer cancel()
		began := time.Now()
		err := p.Warm(ctx)
		testsupport.True(t, err == nil && time.Since(began) == sec && p.Ready(), "Warm returned %v after %v, ready %v", err, time.Since(began), p.Ready())
	})
}

func TestWarmEndsWithItsContext(t *testing.T) {
	inBubble(t, func(o *Options) { o.MinIdle = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.refuse(0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*sec)
		defer cancel()
		err := p.Warm(ctx)
		testsupport.ErrorIs(t, err, context.DeadlineExceeded, "got %v")
		testsupport.AtMost(t, s.dialCount(), 9, "%d dials in 10 s to an SSP that refuses, want few")
		s.set(nil)
		pass(7 * sec)
		testsupport.True(t, p.Ready(), "the pool does not warm up later")
	})
}

func TestCloseWaitsForExchanges(t *testing.T) {
	for name, protocol := range map[string]exchange.Protocol{"exclusive": exchange.HTTP1, "multiplexed": exchange.HTTP2} {
		runInBubble(t, name, func(o *Options) { o.Protocol, o.MaxConns, o.MaxHTTP2Conns = protocol, 2, 2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: protocol, places: 1})
			s.do = func(*fakeConn, *exchange.Exchange) error { time.Sleep(200 * msec); return nil }
			a, b := ask(t, p, sec), ask(t, p, sec)
			pass(20 * msec)
			done := make(chan error, 2)
			go func() { done <- a.do() }()
			go func() { done <- b.do() }()
			waits := ask(t, p, sec)
			began := time.Now()
			cut := p.Close(t.Context())
			took := time.Since(began)
			testsupport.True(t, cut == 0 && took == 200*msec, "Close cut %d after %v, want none after 200ms", cut, took)
			for range 2 {
				err := <-done
				testsupport.True(t, err == nil, "an exchange under way got %v", err)
			}
			waits.wantErr(exchange.Draining, 0)
			late := ask(t, p, sec)
			late.wantErr(exchange.Draining, 0)
			testsupport.True(t, s.openCount() == 0 && s.dialCount() == 2, "%d connections open, %d dials", s.openCount(), s.dialCount())
			testsupport.Equal(t, p.closedFor(exchange.ClosedDrain), 2, "%d connections closed as drained")
			if p.Close(t.Context()) != 0 { // closing again is harmless
				t.Error("the second Close cut exchanges")
			}
		})
	}
}

func TestCloseCutsExchangesAfterItsTimeout(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.do = func(c *fakeConn, _ *exchange.Exchange) error {
			for c.CloseReason() == exchange.NotClosed {
				time.Sleep(msec)
			}
			return errFakeLost
		}
		fails := make(chan error, 3)
		for range 3 {
			r := ask(t, p, sec)
			pass(20 * msec)
			go func() { fails <- r.do() }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 50*msec)
		defer cancel()
		began := time.Now()
		cut := p.Close(ctx)
		testsupport.True(t, cut == 3 && time.Since(began) == 50*msec, "Close cut %d after %v, want 3 after 50ms", cut, time.Since(began))
		for range 3 {
			err := <-fails
			testsupport.True(t, exchange.AsError(err).Outcome == exchange.ConnLost, "an exchange that was cut got %v", err)
		}
		wantConsistent(t, p, s)
		testsupport.Equal(t, p.Snapshot().PlacesInUse, 0, "%d places in use")
	})
}

func TestCloseCancelsDials(t *testing.T) {
	inBubble(t, func(o *Options) { o.MinIdle = 2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: 700 * msec})
		r := ask(t, p, sec)
		began := time.Now()
		p.Close(t.Context())
		testsupport.Equal(t, time.Since(began), 0, "Close took %v")
		r.wantErr(exchange.Draining, 0)
		testsupport.Equal(t, p.Snapshot().DialErrors, 0, "%d cancelled dials are counted as failed")
		err := p.Warm(t.Context())
		testsupport.True(t, exchange.AsError(err).Outcome == exchange.Draining, "Warm after Close says %v", err)
	})
}

func TestConnectionDialledDuringCloseIsClosed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		through := make(chan struct{})
		s.set(func(dialCall) dialResult { <-through; return dialResult{} })
		r := ask(t, p, sec)
		closed := make(chan struct{})
		go func() { p.Close(t.Context()); close(closed) }()
		r.wantErr(exchange.Draining, 0)
		// The dialer notices the end of its context too late.
		s.locked(func() { s.script = nil })
		close(through)
		<-closed
		testsupport.Equal(t, s.openCount(), 0, "%d connections are open")
	})
}

func TestSlowClosesCountTowardsMaxConnsAndCloseWaitsForThem(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxRequests, o.PendingTimeout = 1, 1, sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		r := acquire(t, p)
		r.conn().slowClose = 100 * msec
		r.do()
		next := ask(t, p, sec)
		pass(50 * msec)
		next.wantWaits()
		testsupport.Equal(t, s.dialCount(), 1, "%d dials while the connection is being closed")
		pass(60 * msec)
		next.wantConn(1, 110*msec)
		s.conn(1).slowClose = 100 * msec
		next.do()
		p.Close(t.Context())
		testsupport.Equal(t, s.openCount(), 0, "Close returned with %d connections open")
	})
}
