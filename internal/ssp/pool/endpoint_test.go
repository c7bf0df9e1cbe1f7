package pool

import (
	"cmp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// names are the endpoints of the tests. Most tests have at most the first four.
var (
	allNames = []string{"a:80", "b:80", "c:80", "d:80", "e:80", "f:80"}
	names    = allNames[:4]
)

// endpointsSSP is an SSP with n endpoints a, b, c, …, each with one address.
func endpointsSSP(t testing.TB, n int) *fakeSSP {
	s := newFakeSSP(t)
	s.addrs = addresses(n)
	for i := range s.addrs {
		s.addrs[i].Name = allNames[i]
	}
	return s
}

// withWeights configures endpoints a, b, c, … with these weights.
func withWeights(weights ...int) func(*Options) {
	return func(o *Options) {
		o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns = 64, 64, 8
		o.Endpoints = nil
		for i, w := range weights {
			o.Endpoints = append(o.Endpoints, balancer.Options{Name: allNames[i], Weight: w})
		}
	}
}

// eventLog collects the events of a pool.
type eventLog struct {
	mu   sync.Mutex
	list []balancer.Event
}

func (l *eventLog) add(e balancer.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, e)
}

// all returns the events once all goroutines are blocked.
func (l *eventLog) all() []balancer.Event {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list
}

// ejections returns the duration of each ejection.
func (l *eventLog) ejections() (lasts []time.Duration) {
	for _, e := range l.all() {
		if e.Ejected {
			lasts = append(lasts, e.Lasts)
		}
	}
	return lasts
}

// serve makes n requests one after the other. Each request takes took, and fails says whether it
// fails. serve returns how many requests each endpoint had, and how many got no place.
func serve(t testing.TB, p *Pool, n int, took time.Duration, fails func(endpoint string) bool) (served map[string]int) {
	t.Helper()
	served = make(map[string]int)
	for range n {
		r := acquire(t, p)
		time.Sleep(took)
		served[r.ex.Endpoint]++
		finish(r, fails != nil && fails(r.ex.Endpoint))
	}
	return served
}

// finish ends a request, with a result for its endpoint.
func finish(r *request, failed bool) {
	r.ex.Times.Done = time.Now()
	r.do()
	o, v := exchange.Fill, exchange.Success
	if failed {
		o, v = exchange.ServerError, exchange.Failure
	}
	r.place.Ended(o, v, 0, &r.ex.Times)
}

func stateOf(p *Pool, name string) string {
	for _, e := range p.Snapshot().Endpoints {
		if e.Endpoint == name {
			return e.State
		}
	}
	return ""
}

// Over both kinds of connections, the pool shares each round of requests exactly by weight.
func TestWeightsShareRequests(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		withEndpoints(t, 3, func(o *Options) { withWeights(5, 2, 1)(o); o.Protocol = protocol }, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: 10 * msec, protocol: protocol})
			serve(t, p, 30, 5*msec, nil) // until each endpoint has a connection
			for range 3 {
				got := serve(t, p, 80, msec, nil)
				testsupport.True(t, got["a:80"] == 50 && got["b:80"] == 20 && got["c:80"] == 10, "%v: 80 requests were shared %v, want 50, 20, 10", protocol, got)
			}
		})
	}
}

// A request does not wait for a dial to its endpoint while another endpoint has a free place.
func TestRequestTakesAnotherEndpointsFreePlace(t *testing.T) {
	withEndpoints(t, 2, withWeights(1, 1), func(t *testing.T, s *fakeSSP, p *Pool) {
		s.set(func(c dialCall) dialResult { return dialResult{after: 50 * msec} })
		first := acquire(t, p)
		finish(first, false)
		for range 5 { // while the other endpoint is dialled
			began := time.Now()
			r := acquire(t, p)
			testsupport.Equal(t, time.Since(began), 0, "a request waited %v")
			finish(r, false)
		}
		synctest.Wait()
		testsupport.Equal(t, s.dialCount(), 2, "%d dials, want one to each endpoint")
		pass(60 * msec)
		got := serve(t, p, 100, msec, nil)
		testsupport.True(t, got["a:80"] == 50 && got["b:80"] == 50, "once both are connected, 100 requests are shared %v", got)
	})
}

// If max_conns allows fewer connections than there are endpoints, the pool does not replace a
// connection for each request.
func TestMoreEndpointsThanMaxConnsCauseNoDials(t *testing.T) {
	for conns := 1; conns <= 4; conns++ {
		withEndpoints(t, 4, func(o *Options) { withWeights(1, 1, 1, 1)(o); o.MaxConns, o.MaxIdle = conns, conns }, func(t *testing.T, s *fakeSSP, p *Pool) {
			serve(t, p, 200, 10*msec, nil)
			testsupport.Equal(t, s.dialCount(), conns, "%d dials for %d connections", conns)
		})
	}
}

// An endpoint without a connection gets one even at max_conns or max_http2_conns: the most crowded
// endpoint loses one.
func TestEndpointWithoutConnectionGetsOneAtTheLimit(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2, exchange.Unknown} {
		withEndpoints(t, 2, func(o *Options) {
			withWeights(1, 1)(o)
			o.Protocol, o.MaxHTTP2Conns, o.MinIdle = protocol, 2, 2
			if protocol == exchange.HTTP1 {
				o.MaxConns, o.MaxIdle = 2, 2
			}
		}, func(t *testing.T, s *fakeSSP, p *Pool) {
			s.always(dialResult{after: msec, protocol: cmp.Or(protocol, exchange.HTTP2)})
			p.SetEndpointState("b:80", balancer.Disabled)
			testsupport.NoError(t, p.Warm(t.Context()))
			testsupport.MustEqual(t, len(s.openTo("a:80")), 2, "a has %d connections")
			p.SetEndpointState("b:80", balancer.Enabled)
			serve(t, p, 10, 5*msec, nil)
			testsupport.Equal(t, serve(t, p, 100, msec, nil)["b:80"], 50, "%[2]v: b got %[1]d of 100 requests", protocol)
			for _, e := range names[:2] {
				testsupport.Equal(t, len(s.openTo(e)), 1, "%[2]v: %[3]s has %[1]d connections", protocol, e)
			}
			testsupport.Equal(t, s.dialCount(), 3, "%[2]v: %[1]d dials", protocol)
		})
	}
}

func TestEndpointThatFailsIsEjected(t *testing.T) {
	for name, change := range map[string]func(*balancer.Ejection){
		"in a row": func(o *balancer.Ejection) { o.MinRequests = 1000 },
		"by ratio": func(o *balancer.Ejection) { o.Consecutive = 0 },
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			s := endpointsSSP(t, 2)
			var log eventLog
			p := start(t, s, func(o *Options) {
				withWeights(1, 1)(o)
				change(&o.Ejection)
				o.Events = log.add
			})
			failures := serve(t, p, 200, msec, failing("b:80"))["b:80"]
			want := map[string]int{"in a row": 5, "by ratio": 20}[name]
			testsupport.True(t, failures == want, "%d requests failed, want %d", failures, want)
			testsupport.Equal(t, stateOf(p, "b:80"), "ejected", "b is %s")
			events := log.all()
			testsupport.True(t, len(events) == 1 && events[0].Ejected && events[0].Endpoint == "b:80" && events[0].Lasts == 5*time.Second, "events %+v, want one ejection of b for 5 s", events)
			for i, c := range s.conns {
				testsupport.True(t, c.addr.Name != "b:80" || c.CloseReason() != exchange.NotClosed, "connection %d to b is still open", i)
			}
		})
	}
}

// The goroutine that reports an event reads no settings. The race detector sees it.
func TestSettingsChangeWhileAnEventIsReported(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var log eventLog
		p := start(t, endpointsSSP(t, 2), func(o *Options) { withWeights(1, 1)(o); o.Events = log.add })
		for range 20 {
			finish(acquire(t, p), true)
			p.SetOptions(p.Options())
		}
		testsupport.Equal(t, len(log.ejections()), 1, "%d ejections")
	})
}

// Endpoints of the lowest priority get all requests while one of them works.
func TestPriorities(t *testing.T) {
	for _, protocol := range []exchange.Protocol{exchange.HTTP1, exchange.HTTP2} {
		for _, how := range []string{"fails", "refuses", "hangs"} {
			testsupport.RunBubble(t, protocol.String()+" "+how, func(t *testing.T) {
				s := endpointsSSP(t, 3)
				var broken atomic.Bool
				s.set(func(c dialCall) dialResult {
					switch {
					case !broken.Load() || c.addr.Name == "c:80" || how == "fails":
						return dialResult{after: 5 * msec, protocol: protocol}
					case how == "refuses":
						return dialResult{after: msec, err: errRefused}
					default:
						return dialResult{after: time.Hour}
					}
				})
				p := start(t, s, func(o *Options) {
					withWeights(1, 1, 1)(o)
					o.Protocol = protocol
					o.Endpoints[2].Priority = 1
					o.Ejection.MaxEjected = 0.7
				})
				testsupport.MustEqual(t, serve(t, p, 100, msec, nil)["c:80"], 0, "c got %d requests while a and b work")
				broken.Store(true)
				for _, c := range s.conns {
					if how != "fails" {
						c.goAway(exchange.ClosedByPeer)
					}
				}
				for end := time.Now().Add(time.Second); time.Now().Before(end); {
					r := ask(t, p, 100*msec)
					pass(10 * msec)
					if !r.ended() {
						pass(100 * msec)
					}
					if r.err == nil {
						finish(r, how == "fails" && r.ex.Endpoint != "c:80")
					}
				}
				testsupport.AtLeast(t, serve(t, p, 100, msec, nil)["c:80"], 99, "a second after a and b broke, c got %d of 100 requests")
				broken.Store(false)
				for end := time.Now().Add(9 * time.Second); time.Now().Before(end); {
					serve(t, p, 1, 50*msec, nil)
				}
				got := serve(t, p, 100, msec, nil)
				testsupport.True(t, got["c:80"] == 0 && got["a:80"] == 50, "9 s after they work again, 100 requests were shared %v", got)
			})
		}
	}
}
