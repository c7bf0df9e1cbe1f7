package route

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// When the response is written, the request's memory belongs to the next request. A request that ends
// with its client, like a stream over HTTP/2, has a context. Then too, its copy is held only until its
// legs have ended, whether its client stays or leaves.
func TestLegsDoNotReadMemoryOfAFinishedRequest(t *testing.T) {
	for _, mode := range []Mode{ParallelFirst, ParallelAll} {
		for _, client := range []string{"without a context", "stays", "leaves"} {
			testsupport.RunBubble(t, fmt.Sprint(mode, client), func(t *testing.T) {
				loser, winner := newFake(t, "loser", reply{stubborn: time.Second}), newFake(t, "winner", fills(10*ms, "ad"))
				rt := newRoute(ParallelFirst, loser, winner)
				if mode == ParallelAll {
					rt = all([]*fakeSSP{loser, winner}, true, false)
				}
				r := newClient(t, exchange.POST, "a=1", strings.Repeat("body", 100), "User-Agent: phone", "X-Device-User-Agent: tv", "Cookie: id=7")
				budget, p := r.Budget, newProcess(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch client {
				case "stays":
					r.Context = ctx
				case "leaves":
					r.Context = ctx
					time.AfterFunc(5*ms, cancel)
				}
				res := rt.Do(&r.Request, nil, p)
				won := res.Outcome == exchange.Fill || res.Outcome == exchange.Merged
				testsupport.MustTrue(t, won != (client == "leaves"), "result: %s", ended(&res))
				res.Release()
				r.poison()
				if client != "leaves" && (p.InFlight.Now() != 1 || budget.Used() < 400) {
					t.Fatalf("%d legs in flight with %d bytes: the loser does not outlive its request", p.InFlight.Now(), budget.Used())
				}
				time.Sleep(2 * time.Second)
				wantEmpty(t, budget)
				testsupport.True(t, loser.torn == 0, "the loser's request changed while it ran")
			})
		}
	}
}

// A leg may write its message head after the response to the request is complete. Then it reads the
// header from the copy.
func TestHeaderWrittenLateIsWrittenFromTheCopy(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		first := true
		loser := newFake(t, "loser", silent, func(o *ssp.Options) { o.RetryMax = 1 })
		loser.script = func(*exchange.Exchange) reply {
			if first {
				first = false
				return reply{after: 50 * ms, err: &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotProcessed}}
			}
			return responses(0, 204)
		}
		r := newClient(t, exchange.POST, "a=1", "body", "Cookie: id=7")
		// Run the leg alone, like one whose connection has not learned of the cancellation.
		f, err := all([]*fakeSSP{loser, newFake(t, "primary", silent)}, true, false).newFanout(&r.Request, newProcess(t), true)
		testsupport.NoError(t, err)
		f.legs[0].ctx = nil
		f.start(&f.legs[0])
		synctest.Wait()
		f.detach()
		r.poison()
		time.Sleep(time.Second)
		loser.wantRequests(2)
		for i, q := range loser.requests() {
			want(t, fmt.Sprintf("attempt %d", i), q.method+" "+q.target+" "+q.fields+q.body, "POST /bid?a=1 Cookie: id=7\r\nX-Forwarded-For: 192.0.2.1\r\nbody")
		}
	})
}

// routesToTwo are routes to the SSPs a and b: whether their legs may outlive the request, and so have a copy of it,
// and whether a's and b's leg can be cancelled.
var routesToTwo = []struct {
	name             string
	rt               func(a, b *fakeSSP) *Route
	copies           bool
	cancelA, cancelB bool
}{
	{"single", func(a, b *fakeSSP) *Route { return newRoute(Single, a, b) }, false, false, false},
	{"split", func(a, b *fakeSSP) *Route { return newRoute(Split, a, b) }, false, false, false},
	{"waterfall", func(a, b *fakeSSP) *Route { return newRoute(Waterfall, a, b) }, false, false, false},
	{"parallel-all", func(a, b *fakeSSP) *Route { return all([]*fakeSSP{a, b}) }, false, false, false},
	{"parallel-all with a secondary", func(a, b *fakeSSP) *Route { return all([]*fakeSSP{a, b}, true) }, true, true, false},
	{"parallel-first", func(a, b *fakeSSP) *Route { return newRoute(ParallelFirst, a, b) }, true, true, true},
}

// If the caller waits for every leg, nothing is copied. Legs that it waits for cannot be cancelled, so their
// connections need not watch for that.
func TestOnlyLegsThatMayOutliveTheRequestHaveACopyAndCanBeCancelled(t *testing.T) {
	for _, tt := range routesToTwo {
		testsupport.RunBubble(t, tt.name, func(t *testing.T) {
			a, b := newFake(t, "a", silent), newFake(t, "b", silent)
			r := newClient(t, exchange.POST, "", "body")
			for f, cancellable := range map[*fakeSSP]bool{a: tt.cancelA, b: tt.cancelB} {
				f.script = func(ex *exchange.Exchange) reply {
					own := &ex.Request.Body[0] == &r.body[0]
					testsupport.True(t, own != tt.copies, "%s's leg has the request's own body: %v", f.Name(), own)
					got := ex.Context != nil
					testsupport.True(t, got == cancellable, "%s can be cancelled: %v", f.Name(), got)
					return responses(ms, 204)
				}
			}
			res := tt.rt(a, b).Do(&r.Request, nil, newProcess(t))
			res.Release()
			wantEmpty(t, r.Budget)
		})
	}
}

// TestManyRequestsShareMemoryWithoutMixing runs requests of all modes at once. Each request has its
// name in its query, in a field and in its body. SSPs check during the whole request that the three
// agree. The race detector finds all other errors.
func TestManyRequestsShareMemoryWithoutMixing(t *testing.T) {
	var fakes []*fakeSSP
	for _, n := range []string{"a", "b", "c", "d"} {
		f := newFake(t, n, silent)
		f.script = func(ex *exchange.Exchange) reply {
			checkWho(t, ex)
			r := [...]reply{
				fills(0, "ad"), fills(time.Duration(rand.IntN(1000))*time.Microsecond, "slow ad"), responses(0, 204), responses(ms/2, 503),
				fails(0, exchange.ConnLost), silent, fills(ms, "late"),
			}[rand.IntN(7)]
			r.stubborn = time.Duration(rand.IntN(3)) * ms
			return r
		}
		fakes = append(fakes, f)
	}
	routes := []*Route{
		newRoute(Waterfall, fakes...), newRoute(ParallelFirst, fakes...), newRoute(ParallelFirst, fakes[:2]...),
		all(fakes), all(fakes, true, true, false, true), all(fakes[:3], false, false, true),
	}
	p := &Process{InFlight: new(ssp.InFlight), Panicked: func(v any, stack []byte) { t.Errorf("%v\n%s", v, stack) }}
	p.InFlight.SetLimit(60)
	budget := exchange.NewBudget(1 << 20)
	var outcomes [exchange.Outcomes]atomic.Int64
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			r := new(client)
			for n := range 60 {
				who := fmt.Sprintf("%d.%d.", w, n)
				r.set(t, exchange.POST, "who="+who, strings.Repeat(who, 1+rand.IntN(50)), "X-Who: "+who, "Cookie: "+strings.Repeat("c", rand.IntN(100)))
				r.Budget = budget
				r.Deadline = r.Received.Add(5 * ms)
				res := routes[(w+n)%len(routes)].Do(&r.Request, nil, p)
				outcomes[res.Outcome].Add(1)
				res.Release()
				r.poison()
			}
		})
	}
	wg.Wait()
	for p.InFlight.Now() > 0 || budget.Used() > 0 {
		runtime.Gosched() // the last abandoned legs end within milliseconds
	}
	for _, o := range []exchange.Outcome{exchange.Fill, exchange.Merged} {
		testsupport.True(t, outcomes[o].Load() != 0, "no request ended as %v", o)
	}
	for _, f := range fakes {
		testsupport.True(t, f.torn == 0, "%s saw %d requests change", f.Name(), f.torn)
	}
}

// checkWho checks that all parts of a request belong to one client.
func checkWho(t *testing.T, ex *exchange.Exchange) {
	q := &ex.Request
	who := strings.TrimPrefix(string(q.Target), "/bid?who=")
	testsupport.True(t, strings.Contains(string(q.Fields), "X-Who: "+who+"\r\n"), "the request of %q has the fields %q", who, q.Fields)
	testsupport.True(t, len(q.Body) != 0 && strings.ReplaceAll(string(q.Body), who, "") == "", "the request of %q has the body %q", who, q.Body)
}

// Only one goroutine at a time may check the client's connection, and only until the response.
func TestLegsCheckTheClientConnectionOneAtATime(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		var fakes []*fakeSSP
		for _, n := range []string{"a", "b", "c", "d"} {
			f := newFake(t, n, responses(0, 204))
			f.dialTakes = 5 * ms // a leg that waited this long checks the client's connection
			fakes = append(fakes, f)
		}
		r := get(t)
		calls, over := 0, false // unguarded on purpose: the race detector sees concurrent calls
		r.Gone = func() bool {
			if calls++; over {
				t.Error("Gone is called after the response")
			}
			return false
		}
		rt := newRoute(ParallelFirst, fakes...)
		p := newProcess(t)
		res := rt.Do(&r.Request, nil, p)
		res.Release()
		testsupport.Equal(t, calls, len(fakes), "Gone is called %d times")

		f, err := rt.newFanout(&r.Request, p, true)
		testsupport.NoError(t, err)
		f.refs.Add(1) // a leg that still runs
		ask := f.request.Gone
		f.detach()
		over = true
		testsupport.True(t, !ask(), "gone")
		f.release()
	})
}

// A body that several legs send counts in the share of each while its leg runs, and once in the
// budget of all. An SSP whose share is full ends only its own legs.
func TestBodyCountsInTheShareOfEachLeg(t *testing.T) {
	for _, tt := range routesToTwo[2:] {
		for _, full := range []bool{false, true} {
			testsupport.RunBubble(t, fmt.Sprint(tt.name, full), func(t *testing.T) {
				r := newClient(t, exchange.POST, "", strings.Repeat("b", 800))
				budget, copied := r.Budget, int64(0)
				if tt.copies {
					copied = copySize(&r.Request)
				}
				look := func(f *fakeSSP, then reply) {
					f.script = func(*exchange.Exchange) reply {
						got := f.Snapshot().BufferedBytes
						testsupport.True(t, got == 800+copied, "%s: %d bytes are held, want %d", f.Name(), got, 800+copied)
						testsupport.Equal(t, budget.Used(), copied, "%d bytes of the budget are held")
						return then
					}
				}
				a := newFake(t, "a", silent, func(o *ssp.Options) {
					if full {
						o.MaxBufferedBytes = 1000
					}
				})
				b := newFake(t, "b", silent)
				look(a, responses(20*ms, 204))
				look(b, fills(10*ms, "ad"))
				res := tt.rt(a, b).Do(&r.Request, nil, newProcess(t))
				if got := ended(&res); got != "fill of b: 200 ad" && res.Outcome != exchange.Merged {
					t.Errorf("result: %s", got)
				}
				if got := strings.HasPrefix(legsOf(&res), "a overloaded "); got != full {
					t.Errorf("the SSP's share is full: %v; legs: %s", full, legsOf(&res))
				}
				sent := len(a.requests())
				testsupport.True(t, full != (sent > 0), "a got %d requests", sent)
				b.wantRequests(1)
				res.Release()
				time.Sleep(time.Second)
				wantEmpty(t, budget)
			})
		}
	}
}
