package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// refusedByA asks again for a request that a refused.
func refusedByA(t testing.TB, p *Pool, deadline time.Duration) *request {
	return askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(deadline), Avoid: "a:80", Resent: true, Refused: true}})
}

// onlyA returns a pool of HTTP/2 with an idle connection to a, and none to the n-1 other endpoints.
func onlyA(t *testing.T, n int, change func(*Options), test func(t *testing.T, s *fakeSSP, p *Pool)) {
	withEndpoints(t, n, func(o *Options) {
		withWeights([]int{5, 1, 1}[:n]...)(o)
		o.Protocol = exchange.HTTP2
		if change != nil {
			change(o)
		}
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: 10 * msec, protocol: exchange.HTTP2})
		dialTo(p, 0)
		pass(10 * msec)
		testsupport.MustEqual(t, len(s.openTo("a:80")), 1, "a has %d connections")
		test(t, s, p)
	})
}

func (r *request) wantFrom(endpoint string, took time.Duration) {
	r.t.Helper()
	synctest.Wait()
	testsupport.MustTrue(r.t, r.ended() && r.err == nil, "the request ended %v with %v, want a place at %s", r.ended(), r.err, endpoint)
	testsupport.True(r.t, r.ex.Endpoint == endpoint && r.took == took, "the request got a place at %s after %v, want %s after %v", r.ex.Endpoint, r.took, endpoint, took)
	r.do()
}

// A request that a refused waits for a dial to b, although a has a free place. Other requests do not wait.
func TestRefusedRequestWaitsForADialElsewhere(t *testing.T) {
	onlyA(t, 2, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		refused := []*request{refusedByA(t, p, sec), refusedByA(t, p, sec)}
		testsupport.Equal(t, p.Snapshot().WaitingForDials, 2, "%d requests wait for dials")
		ask(t, p, sec).wantFrom("a:80", 0)
		for _, r := range refused {
			r.wantWaits()
		}
		pass(10 * msec)
		for _, r := range refused {
			r.wantFrom("b:80", 10*msec)
		}
		refusedByA(t, p, sec).wantFrom("b:80", 0)
		testsupport.Equal(t, s.dialCount(), 2, "%d dials, want one to each endpoint")
	})
}

// a's connection closed with the refusal. Whatever the weights, the dial goes to another endpoint.
func TestRefusedRequestWithoutAnyConnectionIsDialledElsewhere(t *testing.T) {
	onlyA(t, 3, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.conn(0).goAway(exchange.ClosedGoaway)
		for range 20 {
			r := refusedByA(t, p, sec)
			pass(10 * msec)
			testsupport.MustTrue(t, r.ended() && r.err == nil && r.ex.Endpoint != "a:80", "the request ended %v with %v at %s", r.ended(), r.err, r.ex.Endpoint)
			r.do()
			for _, c := range s.openConns() {
				c.goAway(exchange.ClosedGoaway)
			}
			pass(20 * msec) // spaces between dials
		}
	})
}

// A third endpoint has a free place. The endpoint that refused the request is not asked again, although it is that endpoint's turn.
func TestRefusedRequestGoesToAnyOtherEndpointWithAPlace(t *testing.T) {
	onlyA(t, 3, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		dialTo(p, 2)
		pass(10 * msec)
		for range 20 {
			refusedByA(t, p, sec).wantFrom("c:80", 0)
			askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Avoid: "a:80"}}).wantFrom("c:80", 0)
			useTurn(p)
		}
	})
}

// The dial to b fails, or takes more than half of the time that is left. The request goes to a again.
func TestRefusedRequestGoesBackIfNoDialElsewhereSucceedsInTime(t *testing.T) {
	for name, c := range map[string]struct {
		dial dialResult
		took time.Duration
	}{
		"refused": {dialResult{after: msec, err: errRefused}, 2 * msec}, // two dials: the first failure may be an accident
		"hangs":   {dialResult{after: time.Hour}, 50 * msec},
		"closes":  {dialResult{after: msec, protocol: exchange.HTTP2, closed: exchange.ClosedByPeer}, 2 * msec},
	} {
		t.Run(name, func(t *testing.T) {
			onlyA(t, 2, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
				s.always(c.dial)
				r := refusedByA(t, p, 100*msec)
				pass(100 * msec)
				r.wantFrom("a:80", c.took)
			})
		})
	}
}

// No dial to b may start. The request goes to a again at once.
func TestRefusedRequestWaitsForNoDialThatMayNotStart(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"max_conns":    func(o *Options) { o.MaxConns = 1 },
		"priority":     func(o *Options) { o.Endpoints[1].Priority = 1 },
		"one endpoint": func(o *Options) { o.Endpoints = o.Endpoints[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			onlyA(t, 2, change, func(t *testing.T, s *fakeSSP, p *Pool) {
				refusedByA(t, p, sec).wantFrom("a:80", 0)
				testsupport.Equal(t, s.dialCount(), 1, "%d dials")
			})
		})
	}
}

// The wait ends with the request's client, with its deadline, and with the pool.
func TestWaitForADialElsewhereEnds(t *testing.T) {
	onlyA(t, 2, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		r := askFor(t, p, &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(sec), Context: ctx, Avoid: "a:80", Resent: true, Refused: true}})
		cancel()
		r.wantErr(exchange.Cancelled, 0)

		s.conn(0).setPlaces(0) // a has none when the time for the dial is over
		late := refusedByA(t, p, 100*msec)
		pass(200 * msec)
		late.wantErr(exchange.Deadline, 100*msec)

		closed := refusedByA(t, p, sec)
		p.Close(t.Context())
		closed.wantErr(exchange.Draining, 0)
		testsupport.Equal(t, p.Snapshot().WaitingForDials, 0, "%d requests wait")
	})
}

// More requests than b's connection has places: the other ones go to a again.
func TestRefusedRequestsBeyondThePlacesElsewhereGoBack(t *testing.T) {
	onlyA(t, 2, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: 10 * msec, protocol: exchange.HTTP2, places: 2})
		var all []*request
		for range 3 {
			all = append(all, refusedByA(t, p, sec))
		}
		pass(10 * msec)
		for i, endpoint := range []string{"b:80", "b:80", "a:80"} {
			testsupport.Equal(t, all[i].ex.Endpoint, endpoint, "request %[2]d got a place at %[1]s", i)
		}
		useAll(all)
	})
}

// A place over HTTP/1 that comes back to b serves a request that a refused at once, not when its dial ends.
func TestRefusedRequestGetsAReturnedPlaceOverHTTP1(t *testing.T) {
	withEndpoints(t, 2, func(o *Options) { withWeights(1, 1)(o) }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.always(dialResult{after: 10 * msec, protocol: exchange.HTTP1})
		dialTo(p, 1)
		pass(10 * msec)
		used := acquire(t, p)
		s.always(dialResult{after: sec, protocol: exchange.HTTP1})
		refused := refusedByA(t, p, sec)
		refused.wantWaits()
		pass(5 * msec)
		used.place.Release(used.ex)
		refused.wantFrom("b:80", 5*msec)
	})
}
