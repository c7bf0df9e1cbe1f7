package pool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var errFakeRefused = &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed, Detail: "the SSP closed the connection without looking at the request"}

// processOnly makes the SSP process the first n requests on each connection, and then send a
// GOAWAY, late after the last response. It refuses the other requests on the connection. If n is 0,
// it processes no request.
func (s *fakeSSP) processOnly(n int, takes, late time.Duration) (processed *atomic.Int64) {
	processed = new(atomic.Int64)
	s.do = func(c *fakeConn, ex *exchange.Exchange) error {
		s.mu.Lock()
		mine := c.done // the number of this request on c
		s.mu.Unlock()
		time.Sleep(takes)
		switch {
		case mine > n:
			time.Sleep(late)
			c.goAway(exchange.ClosedGoaway)
			return errFakeRefused
		case mine == n && late > 0:
			time.AfterFunc(late, func() { c.goAway(exchange.ClosedGoaway) })
		case mine == n:
			c.goAway(exchange.ClosedGoaway)
		}
		processed.Add(1)
		return nil
	}
	return processed
}

// sendUntilProcessed sends a request again and again until the SSP processes it.
func sendUntilProcessed(p *Pool, deadline time.Duration) (refusals int, err error) {
	ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(deadline), Redials: 1}}
	for {
		var place Place
		if place, err = p.Acquire(ex); err != nil {
			return refusals, err
		}
		err = place.Do(ex)
		if err == nil || exchange.AsError(err).Progress != exchange.NotProcessed {
			return refusals, err
		}
		refusals++
		ex.Resent, ex.Times = true, exchange.Times{}
	}
}

func http2Pool(o *Options) {
	o.Protocol = exchange.HTTP2
	o.MaxConns, o.MaxHTTP2Conns, o.MaxPending, o.PendingTimeout = 64, 4, 100, sec
}

// The SSP closes each connection after its first request. Eight clients send one request after the
// other. The SSP processes all requests, and refuses none of them many times.
func TestSSPThatProcessesOneRequestPerConnectionLosesNone(t *testing.T) {
	for i, clients := range []int{8, 64, 8, 64} {
		late := []time.Duration{0, 500 * time.Microsecond}[i/2]
		inBubble(t, http2Pool, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: msec, protocol: exchange.HTTP2})
			processed := s.processOnly(1, msec, late)
			const each = 20
			var refusals, most atomic.Int64
			done := make(chan struct{})
			for range clients {
				go func() {
					defer func() { done <- struct{}{} }()
					for range each {
						n, err := sendUntilProcessed(p, 300*msec)
						testsupport.True(t, err == nil, "a request got %v after %d refusals", err, n)
						refusals.Add(int64(n))
						if int64(n) > most.Load() {
							most.Store(int64(n))
						}
					}
				}()
			}
			for range clients {
				<-done
			}
			testsupport.Equal(t, processed.Load(), int64(clients*each), "%d requests were processed")
			t.Logf("%d clients, GOAWAY %v after the response: %d requests, %d refusals, at most %d of one request, %d dials", clients, late, clients*each, refusals.Load(), most.Load(), s.dialCount())
			testsupport.AtMost(t, refusals.Load(), int64(2*clients*each), "%d refusals for %d requests", clients*each)
		})
	}
}

// Three connections in a row that refuse as many requests as they process begin a probation, and a
// connection with more processed than refused requests does not. A connection that stays open ends it.
func TestProbationIsForNewConnectionsAndEnds(t *testing.T) {
	inBubble(t, func(o *Options) { http2Pool(o); o.MaxHTTP2Conns = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2, places: 20})
		s.processOnly(3, msec, 0)
		for _, places := range []int{0, 0, 3} {
			all := askAll(t, p, 10, sec)
			pass(2 * msec)
			for _, r := range all {
				go r.do()
				synctest.Wait() // so that the SSP counts them one by one
			}
			pass(10 * msec)
			testsupport.MustEqual(t, firstPlaces(p), places, "new connections have %d places (0: all)")
		}
		// The SSP recovers. On the next connection each exchange doubles the places, up to all.
		s.locked(func() { s.do = holding(5 * msec) })
		all := askAll(t, p, 40, sec)
		pass(2 * msec)
		testsupport.Equal(t, p.Snapshot().PlacesInUse, 3, "%d places are in use on a connection on probation")
		useAll(all)
		testsupport.Equal(t, firstPlaces(p), 0, "the probation continues: %v")
		testsupport.Equal(t, s.dialCount(), 4, "%d dials")
		// 43 requests processed, one refused: an ordinary GOAWAY.
		held := acquire(t, p)
		s.last().goAway(exchange.ClosedGoaway)
		s.locked(func() { s.do = func(*fakeConn, *exchange.Exchange) error { return errFakeRefused } })
		held.do()
		testsupport.Equal(t, firstPlaces(p), 0, "one refusal after many requests begins a probation: %v")
	})
}

// An exchange that ends on a connection on probation doubles its places, once as many exchanges have ended
// on it as it had places at first: one, one, two, four, and so on.
func TestPlacesComeBackByDoubling(t *testing.T) {
	inBubble(t, func(o *Options) { http2Pool(o); o.MaxHTTP2Conns = 1 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2, places: 100})
		beginProbation(p, 1)
		var places []int
		for range 9 {
			r := ask(t, p, sec)
			pass(msec)
			places = append(places, r.offered())
			testsupport.NoError(t, r.do())
		}
		testsupport.Equal(t, fmt.Sprint(places), "[1 1 2 4 8 16 32 64 100]", "an exchange found %s places")
		testsupport.Equal(t, firstPlaces(p), 0, "the probation continues: %v")
	})
}

// An SSP that restarts sends a GOAWAY on its connections, also on those on which it has processed one
// request and refuses 99. Its next connections have all their places, so no request waits for a place.
func TestAnSSPThatRestartsKeepsItsPlaces(t *testing.T) {
	inBubble(t, func(o *Options) { http2Pool(o); o.PendingTimeout = 50 * msec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2})
		s.processOnly(1, 0, 0)
		all := askAll(t, p, 400, sec)
		pass(msec)
		for _, r := range all {
			go r.do()
			synctest.Wait() // so that the SSP counts them one by one
		}
		s.locked(func() { s.do = holding(100 * msec) })
		var outcomes sync.Map
		for range 800 { // 200 a second
			go func() {
				ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Redials: 1}}
				place, err := p.Acquire(ex)
				if err == nil {
					err = place.Do(ex)
				}
				if err != nil {
					n, _ := outcomes.LoadOrStore(exchange.AsError(err).Outcome, new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
				}
			}()
			pass(5 * msec)
		}
		pass(sec)
		outcomes.Range(func(o, n any) bool {
			t.Errorf("%d of 800 requests ended as %v", n.(*atomic.Int64).Load(), o)
			return true
		})
		testsupport.Equal(t, p.Snapshot().PlacesLimit, 400, "the pool has %d places")
	})
}

// An SSP closes each connection and processes no request. The pool dials it less and less often.
// Requests wait for the next connection; refused requests wait until their deadline.
func TestSSPThatProcessesNothingIsDialledLessAndLessOften(t *testing.T) {
	inBubble(t, func(o *Options) { http2Pool(o); o.PendingTimeout = 50 * msec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2})
		s.processOnly(0, 0, 0)
		for range 20 {
			began := time.Now()
			refusals, err := sendUntilProcessed(p, sec)
			outcome, wait := exchange.PendingTimeout, 50*msec
			if refusals > 0 {
				outcome, wait = exchange.Deadline, sec
			}
			took := time.Since(began)
			testsupport.True(t, exchange.AsError(err).Outcome == outcome && took == wait, "a request got %v after %v and %d refusals", err, took, refusals)
			pass(sec - time.Since(began))
		}
		// Three dials, then one after each of 1, 2, 4 ms and so on, up to 5 s.
		testsupport.AtMost(t, s.dialCount(), 3+13+5, "%d dials in 20 s")
		// The SSP recovers: all requests use the next connection at once.
		s.locked(func() { s.do = nil })
		pass(6 * sec)
		for range 10 {
			n, err := sendUntilProcessed(p, sec)
			testsupport.True(t, n == 0 && err == nil, "a request got %v after %d refusals", err, n)
		}
	})
}

// After the SSP has processed a request, dials are not spaced.
func TestSSPThatProcessesARequestIsDialledAtOnceAgain(t *testing.T) {
	inBubble(t, func(o *Options) { http2Pool(o); o.PendingTimeout = 10 * sec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2})
		s.processOnly(0, 0, 0)
		_, err := sendUntilProcessed(p, 10*sec) // the spaces grow to seconds
		testsupport.MustTrue(t, err != nil, "the SSP processed a request")
		s.locked(func() { s.do = nil })
		_, err = sendUntilProcessed(p, 10*sec)
		testsupport.NoError(t, err)
		for range 2 { // each closes after its responses, which is no reason for a space
			s.last().goAway(exchange.ClosedGoaway)
			began := time.Now()
			_, err := sendUntilProcessed(p, sec)
			testsupport.True(t, err == nil && time.Since(began) == msec, "a request got %v after %v, want a response after a dial of 1 ms", err, time.Since(began))
		}
	})
}

// The SSP refuses single requests on a connection that stays open. Dials are not spaced.
func TestRefusedRequestsOnAnOpenConnectionDelayNoDial(t *testing.T) {
	inBubble(t, http2Pool, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: msec, protocol: exchange.HTTP2})
		s.do = func(*fakeConn, *exchange.Exchange) error { return errFakeRefused }
		for range 20 {
			acquire(t, p).do()
		}
		s.conn(0).goAway(exchange.ClosedByPeer)
		r := ask(t, p, sec)
		pass(msec)
		r.wantConn(1, msec)
	})
}

// A resent request comes first. Among several, the request with the earliest deadline comes first.
func TestRequestsSentAgainComeFirstInOrderOfTheirDeadlines(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.PendingTimeout = 1, 1, 50*msec }, func(t *testing.T, s *fakeSSP, p *Pool) {
		held := acquire(t, p)
		wait := func(deadline time.Duration, resent bool) *request {
			return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(deadline), Resent: resent}})
		}
		fresh := wait(sec, false)
		third, first, second := wait(900*msec, true), wait(700*msec, true), wait(800*msec, true)
		pass(40 * msec)
		for _, r := range []*request{held, first, second, third} {
			r.do()
			synctest.Wait()
		}
		for _, r := range []*request{first, second, third, fresh} {
			r.wantConn(0, 40*msec)
		}
	})
}

// pending_timeout and max_pending do not apply to a resent request.
func TestRequestSentAgainWaitsUntilItsDeadline(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle, o.MaxPending = 1, 1, 0 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		acquire(t, p)
		ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(300 * msec), Resent: true, Context: context.Background()}}
		_, err := p.Acquire(ex)
		testsupport.True(t, err == exchange.ErrDeadlineNotSent && !time.Now().Before(ex.Deadline), "got %v, %v before the deadline", err, time.Until(ex.Deadline))
	})
}
