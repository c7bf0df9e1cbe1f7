package pool

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// drive sends a request every interval, for length.
func drive(t testing.TB, p *Pool, every, length time.Duration) {
	t.Helper()
	for range length / every {
		go func() {
			ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec)}}
			if place, err := p.Acquire(ex); err == nil {
				place.Do(ex)
			}
		}()
		time.Sleep(every)
	}
	synctest.Wait()
}

func holding(d time.Duration) func(*fakeConn, *exchange.Exchange) error {
	return func(*fakeConn, *exchange.Exchange) error { time.Sleep(d); return nil }
}

func wantNear(t *testing.T, what string, got, want float64) {
	t.Helper()
	testsupport.True(t, math.Abs(got-want) <= 0.03*math.Abs(want), "%s is %v, want about %v", what, got, want)
}

func TestNeedIsRateTimesHoldOfTheLastMinute(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 64, 64 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.do = holding(320 * msec)
		drive(t, p, 40*msec, 65*sec)
		n := p.Snapshot().Need
		wantNear(t, "the window", n.WindowSeconds, 60)
		wantNear(t, "the rate", n.ArrivalsPerSecond, 25)
		wantNear(t, "the hold", n.HoldSeconds, 0.32)
		wantNear(t, "the load", n.Load, 8)
		wantNear(t, "the headroom", n.HeadroomRatio, 0.875)
		want := capacity.Places(n.ArrivalsPerSecond, time.Duration(n.HoldSeconds*1e9), 0.03)
		testsupport.True(t, n.AdvisedPlaces == want && n.AdvisedConnections == want, "%d places on %d connections are advised, want %d on as many", n.AdvisedPlaces, n.AdvisedConnections, want)
		pass(61 * sec)
		n = p.Snapshot().Need
		testsupport.True(t, n.Load == 0 && n.AdvisedConnections == 0 && n.HeadroomRatio == 1, "after a minute without requests the need is %+v, want none", n)
	})
}

func TestNeedCountsRefusedRequests(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxPending = 2, 2, 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.do = holding(100 * msec)
		drive(t, p, 10*msec, 30*sec)
		n := p.Snapshot().Need
		wantNear(t, "the load", n.Load, 10)
		wantNear(t, "the headroom", n.HeadroomRatio, -4)
		testsupport.True(t, n.AdvisedConnections > 10, "%d connections are advised for a load of 10", n.AdvisedConnections)
	})
}

func TestAdvisedHTTP2ConnectionsAreAtMostHalfFull(t *testing.T) {
	inBubble(t, func(o *Options) { o.Protocol, o.MaxConns, o.MaxHTTP2Conns = exchange.HTTP2, 8, 8 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{protocol: exchange.HTTP2, places: 10})
		s.do = holding(100 * msec)
		drive(t, p, 10*msec, 20*sec)
		n := p.Snapshot().Need
		want := (n.AdvisedPlaces + 4) / 5
		testsupport.True(t, n.AdvisedPlaces >= 11 && n.AdvisedConnections == want, "%d places on %d connections of 10 streams are advised, want them on %d", n.AdvisedPlaces, n.AdvisedConnections, want)
	})
}

func TestNeedIsKnownAfterTheFirstSecond(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fakeSSP, p *Pool) {
		pass(sec / 2)
		n := p.Snapshot().Need
		testsupport.True(t, n.WindowSeconds == 0 && n.HeadroomRatio == 1, "before the first round of the janitor the need is %+v", n)
		acquire(t, p).do()
		pass(sec)
		n = p.Snapshot().Need
		testsupport.True(t, n.WindowSeconds == 1 && n.ArrivalsPerSecond == 1, "after the first round, the need is %+v, want one request a second", n)
	})
}
