package pool

import (
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/upstream"
)

func wantSaturation(t *testing.T, p *Pool, inUse, possible int) {
	t.Helper()
	snap := p.Snapshot()
	if snap.PlacesInUse != inUse || snap.PlacesLimit != possible || snap.Saturation != float64(inUse)/float64(possible) {
		t.Errorf("%d of %d places in use, saturation %v; want %d of %d", snap.PlacesInUse, snap.PlacesLimit, snap.Saturation, inUse, possible)
	}
}

func TestSaturationCountsWhatMayYetBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		p := start(t, s, func(o *Options) { o.MaxConns = 8 })
		wantSaturation(t, p, 0, 8)
		a, b := lend(t, p), lend(t, p)
		wantSaturation(t, p, 2, 8)
		a.do()
		wantSaturation(t, p, 1, 8)
		b.do()
	})
}

func TestSaturationWhileTheProtocolIsUnknownCountsOnePlaceAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.speakHTTP2()
		p := start(t, s, auto)
		wantSaturation(t, p, 0, 256)
		r := lend(t, p)
		wantSaturation(t, p, 1, 400) // 100 open, and three more connections
		r.do()
	})
}

func TestSaturationFollowsTheProtocolLastNegotiated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		p := start(t, s, func(o *Options) { auto(o); o.MaxConns, o.MaxIdle = 16, 16 })
		held := lend(t, p)
		wantSaturation(t, p, 1, 16)
		s.speakHTTP2()
		r := lend(t, p)
		wantSaturation(t, p, 2, 1+4*100)
		held.do()
		r.do()
	})
}

func TestSaturationOfPipelinedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.set(func(dialCall) reply { return reply{protocol: upstream.HTTP1Pipelined} })
		p := start(t, s, func(o *Options) { o.Protocol, o.MaxConns = upstream.HTTP1Pipelined, 4 })
		wantSaturation(t, p, 0, 32)
		r := lend(t, p)
		wantSaturation(t, p, 1, 32)
		r.do()
	})
}

func TestDrainingConnectionCountsWhatIsStillInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHTTP2Peer(t)
		p := start(t, s, multiplexed)
		a, b := lend(t, p), lend(t, p)
		wantSaturation(t, p, 2, 30)
		s.conn(0).leave(upstream.ClosedGoaway)
		wantSaturation(t, p, 2, 32)
		a.do()
		b.do()
		wantSaturation(t, p, 0, 30)
	})
}

func TestHighestSaturationIsRememberedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newPeer(t), nil)
		highest := func(want float64) {
			t.Helper()
			for range 2 { // reading changes nothing
				if got := p.Snapshot().SaturationMax; got != want {
					t.Errorf("the highest saturation is %v, want %v", got, want)
				}
			}
		}
		highest(0)
		var all []*request
		for range 3 {
			all = append(all, lend(t, p))
		}
		highest(0.75)
		finish(all)
		highest(0.75)
		pass(30 * sec)
		lend(t, p).do()
		highest(0.75)
		pass(28 * sec)
		highest(0.75)
		pass(3 * sec)
		highest(0.25)
		pass(60 * sec)
		highest(0)
		// Held for longer than a minute: it was high until a moment ago.
		all = nil
		for range 2 {
			all = append(all, lend(t, p))
		}
		pass(3 * time.Minute)
		finish(all)
		highest(0.5)
	})
}

func TestArrivalsSeeTheSaturationBeforeThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newPeer(t), func(o *Options) { o.MaxPending = 0 })
		var all []*request
		for range 4 {
			all = append(all, lend(t, p)) // found 0, 1, 2, 3 of 4 in use
		}
		over := ask(t, p, sec) // found 4 of 4, and was refused
		synctest.Wait()
		over.wantErr(upstream.PendingFull, 0)
		h := p.stats.atArrival
		if h.Count() != 5 || h.Sum() != 0+0.25+0.5+0.75+1 {
			t.Errorf("%d arrivals found %v in sum, want 5 and 2.5", h.Count(), h.Sum())
		}
		finish(all)
	})
}
