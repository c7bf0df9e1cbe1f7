package route

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/ssp"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

const jsonType = "Content-Type: application/json\r\n"

// all returns a route of mode parallel-all to ssps. It does not wait for secondary SSPs.
func all(ssps []*fakeSSP, secondary ...bool) *Route {
	rt := &Route{Name: "r", Mode: ParallelAll}
	for i, s := range ssps {
		rt.Targets = append(rt.Targets, Target{SSP: s.SSP, Secondary: i < len(secondary) && secondary[i]})
	}
	return rt.ready()
}

func TestEnvelopeHoldsEveryResponseInTheRoutesOrder(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{
			newFake(t, "a", reply{after: 12 * ms, status: 200, fields: jsonType, body: `{"id": 1, "seatbid":[]}`}),
			newFake(t, "b", reply{after: 9 * ms, status: 204}),
			newFake(t, "c", silent, func(o *ssp.Options) { o.RequestTimeout = 150 * ms }),
			newFake(t, "d", reply{after: 90*ms + 999*time.Microsecond, status: 503, fields: "content-type: text/plain\r\n", body: "\"tired\"\n"}),
			newFake(t, "e", reply{after: ms, status: 200, fields: jsonType + "Content-Encoding: gzip\r\n", body: "\x1f\x8b\x08"}),
			newFake(t, "f", fails(ms, upstream.ConnLost)),
		}
		r := get(t)
		res := all(fakes).Do(&r.Request, nil, newProcess(t))
		if took := time.Since(r.Received); took != 150*ms {
			t.Errorf("took %v, want 150ms", took)
		}
		want(t, "result", ended(&res), `merged: 200 {"results":[`+
			`{"ssp":"a","status":200,"ms":12,"content_type":"application/json","body":{"id": 1, "seatbid":[]}},`+
			`{"ssp":"b","status":204,"ms":9},`+
			`{"ssp":"c","error":"deadline","ms":150},`+
			`{"ssp":"d","status":503,"ms":90,"content_type":"text/plain","body":"\"tired\"\n"},`+
			`{"ssp":"e","status":200,"ms":1,"content_type":"application/json","body_base64":"H4sI"},`+
			`{"ssp":"f","error":"conn_lost","ms":1}]}`)
		want(t, "legs", legsOf(&res), "a fill 12ms, b no_bid 9ms, c deadline 150ms, d server_error 90.999ms, e fill 1ms, f conn_lost 1ms")
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

func TestSecondariesAreNotWaitedFor(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(20*ms, "x")), newFake(t, "b", fills(50*ms, "y"))
		early, late := newFake(t, "early", fills(30*ms, "z")), newFake(t, "late", fills(60*ms, "!"))
		r := get(t)
		p := newProcess(t)
		res := all([]*fakeSSP{late, a, early, b}, true, false, true, false).Do(&r.Request, nil, p)
		if took := time.Since(r.Received); took != 50*ms {
			t.Errorf("took %v, want 50ms", took)
		}
		want(t, "result", ended(&res), `merged: 200 {"results":[{"ssp":"late","error":"not_waited"},`+
			`{"ssp":"a","status":200,"ms":20,"body":"x"},{"ssp":"early","status":200,"ms":30,"body":"z"},{"ssp":"b","status":200,"ms":50,"body":"y"}]}`)
		want(t, "legs", legsOf(&res), "late cancelled 50ms, a fill 20ms, early fill 30ms, b fill 50ms")
		synctest.Wait()
		late.wantCounted(map[upstream.Outcome]int{upstream.Cancelled: 1})
		early.wantCounted(map[upstream.Outcome]int{upstream.Fill: 1})
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

// With one primary SSP the caller runs its leg. Responses of secondary SSPs that arrive during this
// leg are in the envelope.
func TestSecondariesBesideOnePrimary(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", fills(20*ms, "x"))
		early, late := newFake(t, "early", responses(10*ms, 204)), newFake(t, "late", silent)
		r := get(t)
		res := all([]*fakeSSP{a, late, early}, false, true, true).Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "result", ended(&res), `merged: 200 {"results":[{"ssp":"a","status":200,"ms":20,"body":"x"},{"ssp":"late","error":"not_waited"},{"ssp":"early","status":204,"ms":10}]}`)
	})
}

func TestLegsAskForUncompressedResponses(t *testing.T) {
	set := func(o *ssp.Options) {
		o.Policy = httpheader.NewPolicy(httpheader.PolicyOptions{Set: []httpheader.NameValue{{Name: "accept-encoding", Value: "br"}, {Name: "X-A", Value: "1"}}})
	}
	remove := func(o *ssp.Options) {
		o.Policy = httpheader.NewPolicy(httpheader.PolicyOptions{Remove: []string{"Accept-Encoding"}})
	}
	for mode, plain := range map[Mode]bool{ParallelAll: true, ParallelFirst: false, Single: false, Waterfall: false, Split: false} {
		testsupport.Bubble(t, func(t *testing.T) {
			a := newFake(t, "a", fills(0, "x"))
			r := newClient(t, upstream.GET, "", "", "Accept-Encoding: gzip, zstd")
			res := newRoute(mode, a).Do(&r.Request, nil, newProcess(t))
			res.Release()
			if got := strings.Contains(a.requests()[0].fields, "Accept-Encoding: identity\r\n"); got != plain {
				t.Errorf("mode %d sends %q", mode, a.requests()[0].fields)
			}
			if got := strings.Contains(a.requests()[0].fields, "Accept-Encoding: gzip, zstd\r\n"); got == plain {
				t.Errorf("mode %d sends %q", mode, a.requests()[0].fields)
			}
		})
	}
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "x"), set), newFake(t, "b", fills(0, "x"), remove)
		r := newClient(t, upstream.GET, "", "", "Accept-Encoding: gzip")
		res := newRoute(ParallelAll, a, b).Do(&r.Request, nil, newProcess(t))
		res.Release()
		want(t, "a set it", a.requests()[0].fields, "X-Forwarded-For: 192.0.2.1\r\nAccept-Encoding: identity\r\nX-A: 1\r\n")
		want(t, "b removes it", b.requests()[0].fields, "X-Forwarded-For: 192.0.2.1\r\nAccept-Encoding: identity\r\n")
	})
}

// If the client chooses an SSP of a parallel route, the route works as in mode single.
func TestChosenSSPIsAskedAlone(t *testing.T) {
	for _, mode := range []Mode{Single, Split, Waterfall, ParallelFirst, ParallelAll} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, b := newFake(t, "a", fills(0, "a")), newFake(t, "b", responses(10*ms, 503))
			rt := newRoute(mode, a, b)
			r := newClient(t, upstream.HEAD, "", "", "Accept-Encoding: gzip")
			if _, ok := rt.Allow(upstream.HEAD, &rt.Targets[1]); !ok {
				t.Errorf("mode %d refuses HEAD to a chosen SSP", mode)
			}
			res := rt.Do(&r.Request, &rt.Targets[1], newProcess(t))
			defer res.Release()
			want(t, "result", ended(&res), "server_error of b: 503 no ad for you")
			a.wantRequests(0)
			if !strings.Contains(b.requests()[0].fields, "Accept-Encoding: gzip\r\n") {
				t.Errorf("mode %d sends %q", mode, b.requests()[0].fields)
			}
		})
	}
}

func TestParallelModesRefuseHEAD(t *testing.T) {
	for mode, allow := range map[Mode]string{
		Single: "GET, HEAD, POST", Split: "GET, HEAD, POST", Waterfall: "GET, HEAD, POST", ParallelFirst: "GET, POST", ParallelAll: "GET, POST",
	} {
		rt := &Route{Mode: mode}
		for _, m := range []upstream.Method{upstream.GET, upstream.HEAD, upstream.POST} {
			list, ok := rt.Allow(m, nil)
			if list != allow || ok != strings.Contains(allow, m.String()) {
				t.Errorf("mode %d, %v: %q, %v", mode, m, list, ok)
			}
		}
	}
}

func TestEntriesOfLegsOverTheLimit(t *testing.T) {
	for limit, expect := range map[int]string{
		// The request itself counts as one. The legs are counted in order; the caller's leg is the
		// last.
		1: `merged: 200 {"results":[{"ssp":"a","error":"overloaded","ms":0},{"ssp":"b","error":"overloaded","ms":0},{"ssp":"c","error":"overloaded","ms":0}]}`,
		3: `merged: 200 {"results":[{"ssp":"a","status":200,"ms":1,"body":"x"},{"ssp":"b","status":200,"ms":1,"body":"x"},{"ssp":"c","error":"overloaded","ms":0}]}`,
		4: `merged: 200 {"results":[{"ssp":"a","status":200,"ms":1,"body":"x"},{"ssp":"b","status":200,"ms":1,"body":"x"},{"ssp":"c","status":200,"ms":1,"body":"x"}]}`,
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			fakes := []*fakeSSP{newFake(t, "a", fills(ms, "x")), newFake(t, "b", fills(ms, "x")), newFake(t, "c", fills(ms, "x"))}
			r := get(t)
			p := newProcess(t)
			p.InFlight.SetLimit(limit)
			p.InFlight.Acquire()
			res := all(fakes).Do(&r.Request, nil, p)
			want(t, "result", ended(&res), expect)
			res.Release()
			p.InFlight.Release()
		})
	}
}

func TestEnvelopeThatDoesNotFitIsOverloaded(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		body := strings.Repeat(`"`, 500) // twice as large in the envelope
		rt := all([]*fakeSSP{newFake(t, "a", fills(ms, body)), newFake(t, "b", fills(2*ms, body))})
		p := newProcess(t)
		do := func(budget *upstream.Budget) Result {
			r := get(t)
			r.Budget = budget
			res := rt.Do(&r.Request, nil, p)
			t.Cleanup(func() {
				res.Release()
				wantEmpty(t, budget)
			})
			return res
		}
		budget := upstream.NewBudget(1 << 20)
		do(budget)
		need := 2*500 + budget.Used()
		enough := do(upstream.NewBudget(need))
		if enough.Outcome != upstream.Merged {
			t.Errorf("with the %d bytes that it needs: %s", need, ended(&enough))
		}
		short := do(upstream.NewBudget(need - 1))
		want(t, "with one byte less", ended(&short), "overloaded")
		if !strings.Contains(short.Err.Detail, "see server.max_buffered_bytes") {
			t.Errorf("detail: %s", short.Err.Detail)
		}
	})
}

// The result holds the envelope's bytes until it is written, and no other bytes.
func TestResultHoldsTheEnvelopesBytes(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{newFake(t, "a", fills(ms, strings.Repeat("x", 1000))), newFake(t, "b", fills(ms, strings.Repeat("y", 1000)))}
		r := get(t)
		res := all(fakes).Do(&r.Request, nil, newProcess(t))
		held, size := r.Budget.Used(), int64(len(res.Exchange.Response.Body))
		if held < size || held > size+2*200 {
			t.Errorf("%d bytes are held for an envelope of %d", held, size)
		}
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

func TestNoEnvelopeForAClosedClientConnection(t *testing.T) {
	for i := range 2 { // on the caller's goroutine, and on another
		testsupport.Bubble(t, func(t *testing.T) {
			fakes := []*fakeSSP{newFake(t, "a", fills(ms, "x")), newFake(t, "b", fills(2*ms, "x"))}
			fakes[i].reply = fails(ms, upstream.ClientGone)
			r := get(t)
			res := all(fakes).Do(&r.Request, nil, newProcess(t))
			want(t, "result", ended(&res), "client_gone")
			res.Release()
			wantEmpty(t, r.Budget)
		})
	}
}

func TestPrimariesThatPanicAreInternal(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{newFake(t, "a", reply{panics: true}), newFake(t, "b", fills(ms, "x")), newFake(t, "c", reply{panics: true})}
		var n atomic.Int64
		p := &Process{InFlight: new(ssp.InFlight), Panicked: func(any, []byte) { n.Add(1) }}
		r := get(t)
		res := all(fakes).Do(&r.Request, nil, p)
		defer res.Release()
		want(t, "result", ended(&res), `merged: 200 {"results":[{"ssp":"a","error":"internal","ms":0},{"ssp":"b","status":200,"ms":1,"body":"x"},{"ssp":"c","error":"internal","ms":0}]}`)
		if n.Load() != 2 || p.InFlight.Now() != 0 {
			t.Errorf("%d panics reported, %d in flight", n.Load(), p.InFlight.Now())
		}
	})
}

// An SSP that a reload removes fails alone.
func TestDrainingSSPFailsAlone(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b := newFake(t, "a", fills(0, "x")), newFake(t, "b", fills(0, "x"))
		a.pool.Close(t.Context())
		for mode, expect := range map[Mode]string{
			ParallelAll:   `merged: 200 {"results":[{"ssp":"a","error":"draining","ms":0},{"ssp":"b","status":200,"ms":0,"body":"x"}]}`,
			ParallelFirst: "fill of b: 200 x",
			Waterfall:     "fill of b: 200 x",
			Single:        "draining of a",
		} {
			r := get(t)
			res := newRoute(mode, a, b).Do(&r.Request, nil, newProcess(t))
			want(t, "result", ended(&res), expect)
			res.Release()
			wantEmpty(t, r.Budget)
		}
	})
}

// Primary legs cannot be cancelled, so their connections need not watch for that.
func TestOnlyLegsThatAreNotWaitedForCanBeCancelled(t *testing.T) {
	for _, tt := range []struct {
		rt   func(a, b *fakeSSP) *Route
		a, b bool
	}{
		{func(a, b *fakeSSP) *Route { return all([]*fakeSSP{a, b}) }, false, false},
		{func(a, b *fakeSSP) *Route { return all([]*fakeSSP{a, b}, true) }, true, false},
		{func(a, b *fakeSSP) *Route { return newRoute(ParallelFirst, a, b) }, true, true},
		{func(a, b *fakeSSP) *Route { return newRoute(Waterfall, a, b) }, false, false},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, b := newFake(t, "a", silent), newFake(t, "b", silent)
			for f, cancellable := range map[*fakeSSP]bool{a: tt.a, b: tt.b} {
				f.script = func(ex *upstream.Exchange) reply {
					if got := ex.Context != nil; got != cancellable {
						t.Errorf("%s can be cancelled: %v", f.Name(), got)
					}
					return responses(ms, 204)
				}
			}
			r := get(t)
			res := tt.rt(a, b).Do(&r.Request, nil, newProcess(t))
			res.Release()
			a.wantRequests(1)
			b.wantRequests(1)
		})
	}
}
