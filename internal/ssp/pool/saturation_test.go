package pool

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func wantSaturation(t *testing.T, p *Pool, inUse, possible int) {
	t.Helper()
	snap := p.Snapshot()
	if snap.PlacesInUse != inUse || snap.PlacesLimit != possible || snap.Saturation != float64(inUse)/float64(possible) {
		t.Errorf("%d of %d places in use, saturation %v; want %d of %d", snap.PlacesInUse, snap.PlacesLimit, snap.Saturation, inUse, possible)
	}
}

func TestSaturationCountsConnectionsThatMayYetBeOpened(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 8 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		wantSaturation(t, p, 0, 8)
		all := acquireAll(t, p, 2)
		wantSaturation(t, p, 2, 8)
		all[0].do()
		wantSaturation(t, p, 1, 8)
	})
}

func TestSaturationWhileTheProtocolIsUnknownCountsOnePlaceAConnection(t *testing.T) {
	inBubble(t, auto, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.speakHTTP2()
		wantSaturation(t, p, 0, 256)
		acquire(t, p)
		wantSaturation(t, p, 1, 400) // 100 places are open, and three more connections may be opened
	})
}

func TestSaturationFollowsTheProtocolLastNegotiated(t *testing.T) {
	inBubble(t, func(o *Options) { auto(o); o.MaxConns, o.MaxIdle = 16, 16 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p)
		wantSaturation(t, p, 1, 16)
		s.speakHTTP2()
		acquire(t, p)
		wantSaturation(t, p, 2, 1+4*100)
	})
}

func TestSaturationOfPipelinedConnections(t *testing.T) {
	inBubble(t, func(o *Options) { o.Protocol, o.MaxConns = exchange.HTTP1Pipelined, 4 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{protocol: exchange.HTTP1Pipelined})
		wantSaturation(t, p, 0, 32)
		acquire(t, p)
		wantSaturation(t, p, 1, 32)
	})
}

func TestDrainingConnectionCountsOnlyPlacesInUse(t *testing.T) {
	overHTTP2(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		a, b := acquire(t, p), acquire(t, p)
		wantSaturation(t, p, 2, 30)
		s.conn(0).goAway(exchange.ClosedGoaway)
		wantSaturation(t, p, 2, 32)
		a.do()
		b.do()
		wantSaturation(t, p, 0, 30)
	})
}

func TestHighestSaturationIsRememberedForAMinute(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fakeSSP, p *Pool) {
		highest := func(want float64) {
			t.Helper()
			for range 2 { // reading does not change the value
				testsupport.Equal(t, p.Snapshot().SaturationMax, want, "the highest saturation is %v")
			}
		}
		highest(0)
		all := acquireAll(t, p, 3)
		highest(0.75)
		useAll(all)
		highest(0.75)
		pass(30 * sec)
		acquire(t, p).do()
		highest(0.75)
		pass(28 * sec)
		highest(0.75)
		pass(3 * sec)
		highest(0.25)
		pass(60 * sec)
		highest(0)
		// Places were in use for longer than a minute: saturation was high until now.
		all = acquireAll(t, p, 2)
		pass(3 * time.Minute)
		useAll(all)
		highest(0.5)
	})
}

// The places that were in use at once stay known when a reload changes how many are possible.
func TestTheMostPlacesInUseOutlastAChangeOfMaxConns(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fakeSSP, p *Pool) {
		useAll(acquireAll(t, p, 4))
		o := p.Options()
		o.MaxConns = 8
		p.SetOptions(o)
		pass(3 * sec)
		s := p.Snapshot()
		testsupport.True(t, s.PlacesInUseMax == 4 && s.SaturationMax == 1 && s.PlacesLimit == 8, "at most %d places were in use, saturation %v of %d", s.PlacesInUseMax, s.SaturationMax, s.PlacesLimit)
		pass(60 * sec)
		testsupport.Equal(t, p.Snapshot().PlacesInUseMax, 0, "a minute later, %d places were in use")
	})
}
