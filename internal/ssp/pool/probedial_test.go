package pool

import (
	"sync/atomic"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// If the dial of a probe brings no usable connection, the pool repeats it. The endpoint does not
// stay ejected forever.
func TestProbeWithoutAConnectionIsRepeated(t *testing.T) {
	wantReturn := func(t *testing.T, p *Pool) {
		t.Helper()
		serve(t, p, 200, 100*msec, nil)
		testsupport.Equal(t, stateOf(p, "b:80"), "enabled", "b is %s 20 s after its probe could work")
	}
	testsupport.RunBubble(t, "look-up fails", func(t *testing.T) {
		_, before := startWithBEjected(t)
		s := endpointsSSP(t, 2)
		s.lookup, s.lookupFails = errRefused, 1
		after := start(t, s, withWeights(1, 1))
		after.Inherit(before) // its first dial is the probe
		pass(10 * msec)
		wantReturn(t, after)
	})
	testsupport.RunBubble(t, "closed at once", func(t *testing.T) {
		s, p := startWithBEjected(t)
		s.nextDialTo("b:80", dialResult{after: msec, protocol: exchange.HTTP1, closed: exchange.ClosedByPeer})
		wantReturn(t, p)
	})
	testsupport.RunBubble(t, "closed before the probe", func(t *testing.T) {
		s, p := startWithBEjected(t)
		for range 600 { // until a connection is open for the probe
			if len(s.openTo("b:80")) == 0 {
				pass(10 * msec)
			}
		}
		for _, c := range s.openTo("b:80") {
			c.goAway(exchange.ClosedByPeer)
		}
		wantReturn(t, p)
	})
	testsupport.RunBubble(t, "above a lowered max_conns", func(t *testing.T) {
		s, p := startWithBEjected(t)
		s.nextDialTo("b:80", dialResult{after: 100 * msec})
		held := []*request{acquire(t, p), acquire(t, p)}
		for range 600 { // until the probe's dial begins
			if p.Snapshot().Endpoints[1].Dialing == 0 {
				pass(10 * msec)
			}
		}
		testsupport.MustEqual(t, p.Snapshot().Endpoints[1].Dialing, 1, "%d dials to b")
		changeOptions(p, func(o *Options) { o.MaxConns = 1 })
		pass(100 * msec) // the connection to b is one too many
		testsupport.MustEqual(t, len(s.openTo("b:80")), 0, "%d connections to b")
		changeOptions(p, func(o *Options) { o.MaxConns = 64 })
		for _, r := range held {
			finish(r, false)
		}
		wantReturn(t, p)
	})
}

// nextDialTo makes the next dial to an endpoint end with result. Later dials succeed.
func (s *fakeSSP) nextDialTo(name string, result dialResult) {
	var used atomic.Bool
	s.set(func(c dialCall) dialResult {
		if c.addr.Name == name && used.CompareAndSwap(false, true) {
			return result
		}
		return dialResult{after: msec}
	})
}
