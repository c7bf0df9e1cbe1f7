package pool

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

const sec = time.Second

func TestRequestsAreServedInOrderOfArrival(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		first := acquire(t, p)
		var order []*request
		for range 5 {
			order = append(order, ask(t, p, sec))
			pass(time.Millisecond)
		}
		first.do()
		for i, r := range order {
			r.wantConn(0, time.Duration(len(order)-i)*time.Millisecond)
			for _, later := range order[i+1:] {
				later.wantWaits()
			}
			r.do()
		}
		testsupport.Equal(t, s.dialCount(), 1, "%d dials")
	})
}

func TestMostRecentlyUsedConnectionIsUsedFirst(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		a, b, c := ask(t, p, sec), ask(t, p, sec), ask(t, p, sec)
		pass(20 * time.Millisecond)
		for _, r := range []*request{b, a, c} { // c's connection was used last
			r.do()
		}
		again := acquire(t, p)
		testsupport.True(t, again.conn() == c.conn(), "the request got connection %d, want %d", again.conn().n, c.conn().n)
		next := acquire(t, p)
		testsupport.True(t, next.conn() == a.conn(), "the request got connection %d, want %d", next.conn().n, a.conn().n)
	})
}

func TestFullQueueRefusesAndSaysWhatIsFull(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxPending = 2, 3 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		a, b := ask(t, p, sec), ask(t, p, sec)
		pass(20 * time.Millisecond)
		waiting := askAll(t, p, 3, sec)
		over := ask(t, p, sec)
		e := over.wantErr(exchange.PendingFull, 0)
		want := "2 of 2 places in use on 2 of 2 connections, 3 of 3 requests waiting in the queue; see pool.max_conns and pool.max_pending"
		testsupport.Equal(t, e.Detail, want, "the error says\n%s\nwant\n%s", want)
		testsupport.Equal(t, p.Snapshot().Pending, 3, "%d are pending")
		a.do()
		b.do()
		waiting[0].wantConn(a.conn().n, 0)
		waiting[0].do()
		waiting[1].do()
		synctest.Wait()
		waiting[2].do()
	})
}

func TestPendingTimeoutNamesTheSettingsOfTheProtocol(t *testing.T) {
	for protocol, settings := range map[exchange.Protocol]string{
		exchange.HTTP1:          "pool.max_conns",
		exchange.HTTP2:          "pool.max_http2_conns, pool.max_streams_per_conn",
		exchange.HTTP1Pipelined: "pool.max_conns, pool.pipeline_depth",
	} {
		inBubble(t, func(o *Options) { o.Protocol, o.MaxConns, o.MaxHTTP2Conns = protocol, 1, 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{protocol: protocol, places: 1})
			a := acquire(t, p)
			b := ask(t, p, sec)
			pass(50 * msec)
			want := "no place was free within 50ms; see " + settings + " and pool.pending_timeout"
			e := b.wantErr(exchange.PendingTimeout, 50*msec)
			testsupport.True(t, e.Detail == want, "the error says\n%s\nwant\n%s", e.Detail, want)
			a.do()
			acquire(t, p).do()
		})
	}
}

// A larger pool does not help while the pool cannot open a connection, so the error says why it
// cannot.
func TestPendingTimeoutNamesTheCauseIfDialsPause(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p)
		s.refuse(0)
		for range 3 { // the dials begin to pause
			ask(t, p, sec)
			pass(100 * msec)
		}
		r := ask(t, p, sec)
		pass(100 * msec)
		e := r.wantErr(exchange.PendingTimeout, 50*msec)
		testsupport.True(t, strings.Contains(e.Error(), errRefused.Error()), "the error is %v, want the cause %v", e, errRefused)
	})
}

func TestWithoutAQueueThePoolStillGrowsToItsLimit(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxPending, o.MaxDials = 40, 40, 0, 4 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		all := askAll(t, p, 40, sec)
		synctest.Wait()
		snap := p.Snapshot()
		testsupport.True(t, snap.Pending == 0 && snap.WaitingForDials == 40, "%d wait for a place and %d for dials, want 0 and 40", snap.Pending, snap.WaitingForDials)
		over := ask(t, p, sec)
		over.wantErr(exchange.PendingFull, 0)
		pass(100 * time.Millisecond) // ten rounds of four dials
		seen := map[*fakeConn]bool{}
		for _, r := range all {
			testsupport.MustTrue(t, r.err == nil && r.ended(), "a request got %v, want a connection", r.err)
			seen[r.conn()] = true
		}
		testsupport.Equal(t, len(seen), 40, "%d connections")
		over = ask(t, p, sec)
		over.wantErr(exchange.PendingFull, 0)
		doAll(all)
		acquire(t, p).do()
	})
}

func TestWithoutAQueueAnExpiredConnectionIsReplaced(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxPending, o.IdleTimeout = 1, 0, 300*time.Millisecond }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p).do()
		s.conn(0).slowClose = 5 * time.Millisecond
		pass(400 * time.Millisecond)
		r := ask(t, p, sec)
		pass(20 * time.Millisecond)
		r.wantConn(1, 15*time.Millisecond) // the old connection is closed before the next is dialled
	})
}

func TestUnlimitedQueueRefusesNoRequest(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxPending, o.PendingTimeout = 1, -1, 10*time.Second }, func(t *testing.T, s *fakeSSP, p *Pool) {
		held := acquire(t, p)
		all := askAll(t, p, 300, 10*sec)
		synctest.Wait()
		testsupport.MustEqual(t, p.Snapshot().Pending, 300, "%d are pending")
		held.do()
		useAll(all)
	})
}

func TestWaitEndedByTheDeadlineIsDeadline(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"before pending_timeout": 30 * time.Millisecond, "at pending_timeout": 50 * time.Millisecond} {
		runInBubble(t, name, func(o *Options) { o.MaxConns = 1 }, func(t *testing.T, _ *fakeSSP, p *Pool) {
			acquire(t, p)
			r := ask(t, p, deadline)
			pass(60 * time.Millisecond)
			r.wantErr(exchange.Deadline, deadline)
		})
	}
}

func TestRequestAfterItsDeadlineCausesNoDial(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		r := ask(t, p, 0)
		r.wantErr(exchange.Deadline, 0)
		testsupport.Equal(t, s.dialCount(), 0, "%d dials")
	})
}

// A second attempt may keep Times.Queued of the first one. Once, its wait then continued after the
// deadline, for as long as the first attempt had taken.
func TestEarlierTimesQueuedDoesNotMoveTheDeadline(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.PendingTimeout = 1, sec }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		acquire(t, p)
		ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(100 * time.Millisecond)}}
		ex.Times.Queued = time.Now()
		pass(60 * time.Millisecond)
		began := time.Now()
		_, err := p.Acquire(ex)
		took := time.Since(began)
		testsupport.True(t, took == 40*time.Millisecond && exchange.AsError(err).Outcome == exchange.Deadline, "got %v after %v, want the deadline after 40ms", err, took)
	})
}

func TestWaitForADialIsBoundedByTheDialsTimeouts(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		// The dialer ignores the end of its context.
		block := make(chan struct{})
		s.set(func(c dialCall) dialResult { <-block; return dialResult{} })
		short, long := ask(t, p, 300*time.Millisecond), ask(t, p, 5*sec)
		pass(sec)
		short.wantErr(exchange.Deadline, 300*time.Millisecond)
		e := long.wantErr(exchange.ConnectFailed, 770*time.Millisecond)
		testsupport.True(t, strings.Contains(e.Detail, "timeouts.connect"), "the error says %q", e.Detail)
		close(block)
	})
}

// Four requests wait for four dials, and max_pending is 1. The dials fail while the pool has a
// connection. Then the requests are pending, within max_pending and pending_timeout.
func TestWaitsWhoseDialsFailCountAsPending(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxPending = 5, 5, 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p)
		s.always(dialResult{after: 20 * time.Millisecond, err: errRefused})
		all := askAll(t, p, 4, sec)
		snap := p.Snapshot()
		testsupport.MustTrue(t, snap.Pending == 0 && snap.WaitingForDials == 4, "%d wait for a place and %d for dials, want 0 and 4", snap.Pending, snap.WaitingForDials)
		pass(40 * time.Millisecond) // another dial follows the first failure
		all[0].wantWaits()
		for _, r := range all[1:] {
			e := r.wantErr(exchange.PendingFull, 40*time.Millisecond)
			testsupport.True(t, e.Err == errRefused, "the error does not say why no connection is opened: %v", e)
		}
		testsupport.Equal(t, p.Snapshot().Pending, 1, "%d are pending")
		pass(60 * time.Millisecond)
		all[0].wantErr(exchange.PendingTimeout, 90*time.Millisecond) // 40 ms for the dials, 50 ms for the place
	})
}

// Dials fail again and again, so the request waits alternately for a dial and for a place. The sum
// of its waits for a place is at most pending_timeout.
func TestPendingTimesAddUp(t *testing.T) {
	inBubble(t, func(o *Options) { o.PendingTimeout = 200 * time.Millisecond }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p)
		s.always(dialResult{after: 20 * time.Millisecond, err: errRefused})
		r := ask(t, p, 10*sec)
		pass(sec)
		// The pause of 100 ms, most of the pause of 200 ms (±20 %), and four dials between.
		r.wantErr(exchange.PendingTimeout, 280*time.Millisecond)
	})
}

func TestDialOfACancelledRequestServesTheNextOne(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 2 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		held := acquire(t, p)
		s.always(dialResult{after: 200 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		leaves := askWith(t, p, sec, ctx)
		stays := ask(t, p, sec)
		pass(10 * time.Millisecond)
		cancel()
		leaves.wantErr(exchange.Cancelled, 10*time.Millisecond)
		testsupport.Equal(t, p.Snapshot().Pending, 0, "%d are pending: the dial serves the request that stays")
		pass(sec)
		stays.wantConn(1, 200*time.Millisecond) // a wait for a dial may be longer than pending_timeout
		testsupport.Equal(t, stays.ex.Times.TCP, 200*time.Millisecond, "the exchange's dial took %v")
		testsupport.Equal(t, stays.ex.Times.Acquired.Sub(stays.ex.Times.Queued), 200*time.Millisecond, "the exchange waited %v")
		useAll([]*request{held, stays})
	})
}

// After each back-off the pool dials for the requests that wait, without another event.
func TestWaitingRequestIsDialledForAfterEachBackOff(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult {
			if c.n < 4 {
				return dialResult{err: errRefused}
			}
			return dialResult{after: 150 * msec}
		})
		r := askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(10 * sec), Resent: true}})
		for s.dialCount() < 5 {
			pass(10 * msec)
		}
		// Two failures without a pause, then two pauses of 100 and 200 ms, and one of 400 ms: ±20 %.
		testsupport.AtMost(t, time.Since(r.began), 860*msec, "the fifth dial began after %v, want it after the back-off")
		pass(150 * msec)
		testsupport.MustTrue(t, r.ended() && r.err == nil, "ended %v, %v; want the connection of the dial", r.ended(), r.err)
	})
}

// The first request gets a released place. The dial that began for it now serves the second one,
// whose pending_timeout no longer counts.
func TestDialServesTheNextRequestIfAPlaceIsReleasedFirst(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.PendingTimeout = 2, 50*msec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult { return dialResult{after: time.Duration(1+99*c.n) * msec} })
		held := acquire(t, p)
		first := ask(t, p, sec) // its dial takes 100 ms
		second := ask(t, p, sec)
		pass(10 * msec)
		held.do()
		pass(100 * msec)
		first.wantConn(0, 10*msec)
		second.wantConn(1, 100*msec)
	})
}

func TestCancelledRequestLeavesTheQueue(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns = 1 }, func(t *testing.T, _ *fakeSSP, p *Pool) {
		held := acquire(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		lost, next := askWith(t, p, sec, ctx), (*request)(nil)
		next = ask(t, p, sec)
		pass(time.Millisecond)
		cancel()
		lost.wantErr(exchange.Cancelled, time.Millisecond)
		testsupport.Equal(t, p.Snapshot().Pending, 1, "%d are pending")
		held.do()
		next.wantConn(0, time.Millisecond)
	})
}
