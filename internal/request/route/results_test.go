package route

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// resultTest is a request to a route to the SSPs a, b, c …, and what comes of it.
type resultTest struct {
	name      string
	mode      Mode
	ssps      []reply
	secondary string // the SSPs that parallel-all does not wait for
	noBidBody ssp.NoBidBody
	state     balancer.State // of a
	drains    bool           // a is being removed by a reload
	limit     int            // of requests and legs in flight, the request itself included; 0 = none
	change    func(t *testing.T, rt *Route, r *client)

	result string
	detail string        // a part of the error
	legs   string        // how they ended; anyLegs is not compared
	took   time.Duration // until the result
	asked  string        // the SSPs that got the request
	panics int64
}

const anyLegs = "any"

// tiers sets the timeouts of the first targets.
func tiers(timeouts ...time.Duration) func(*testing.T, *Route, *client) {
	return func(_ *testing.T, rt *Route, _ *client) {
		for i, d := range timeouts {
			rt.Targets[i].Timeout = d
		}
	}
}

var resultTests = []resultTest{
	{name: "fill", mode: Single, ssps: []reply{fills(10*ms, "ad"), fills(0, "other")}, result: "fill of a: 200 ad", took: 10 * ms, asked: "a"},
	{name: "no bid", mode: Single, ssps: []reply{responses(10*ms, 204), fills(0, "other")}, result: "no_bid of a: 204", took: 10 * ms, asked: "a"},
	// A document without an ad is forwarded unchanged.
	{name: "document", mode: Single, noBidBody: ssp.NoBidVAST, ssps: []reply{fills(10*ms, "<VAST/>"), fills(0, "other")}, result: "no_bid of a: 200 <VAST/>", took: 10 * ms, asked: "a"},
	{name: "error", mode: Single, ssps: []reply{responses(10*ms, 500), fills(0, "other")}, result: "server_error of a: 500 no ad for you", took: 10 * ms, asked: "a"},
	{name: "failure", mode: Single, ssps: []reply{fails(10*ms, exchange.ConnLost), fills(0, "other")}, result: "conn_lost of a", took: 10 * ms, asked: "a"},

	{ // b gets no request instead.
		name: "the drawn SSP fails", mode: Split, ssps: []reply{responses(0, 503), fills(0, "ad")},
		change: func(_ *testing.T, rt *Route, _ *client) { rt.draw = func(int) int { return 0 } },
		result: "server_error of a: 503 no ad for you", asked: "a",
	},
	{name: "a disabled SSP", mode: Single, state: balancer.Disabled, ssps: []reply{fills(0, "ad")}, result: "ssp_disabled of a"},
	{name: "all disabled", mode: Split, state: balancer.Disabled, ssps: []reply{fills(0, "ad")}, result: "ssp_disabled of a"},
	{
		name: "a disabled SSP is drawn", mode: Split, state: balancer.Disabled, ssps: []reply{fills(0, "other"), fills(0, "ad")},
		change: func(_ *testing.T, rt *Route, _ *client) { rt.draw = func(int) int { return 0 } },
		result: "fill of b: 200 ad", asked: "b",
	},
	{
		name: "a disabled SSP", mode: Waterfall, state: balancer.Draining, ssps: []reply{fills(0, "other"), fills(0, "ad")},
		result: "fill of b: 200 ad", legs: "a ssp_disabled 0s, b fill 0s", asked: "b",
	},
	{
		name: "a disabled SSP", mode: ParallelFirst, state: balancer.Draining, ssps: []reply{fills(0, "other"), fills(ms, "ad")},
		result: "fill of b: 200 ad", legs: "a ssp_disabled 0s, b fill 1ms", took: ms, asked: "b",
	},
	{
		name: "a disabled SSP", mode: ParallelAll, state: balancer.Disabled, ssps: []reply{fills(0, "other"), fills(0, "ad")},
		result: `merged: 200 {"results":[{"ssp":"a","error":"ssp_disabled"},{"ssp":"b","status":200,"ms":0,"body":"ad"}]}`, legs: "a ssp_disabled 0s, b fill 0s", asked: "b",
	},
	{name: "an SSP that drains", mode: Single, drains: true, ssps: []reply{fills(0, "ad")}, result: "draining of a"},
	{
		name: "an SSP that drains", mode: Waterfall, drains: true, ssps: []reply{fills(0, "other"), fills(0, "ad")},
		result: "fill of b: 200 ad", legs: "a draining 0s, b fill 0s", asked: "b",
	},
	{
		name: "an SSP that drains", mode: ParallelFirst, drains: true, ssps: []reply{fills(0, "other"), fills(ms, "ad")},
		result: "fill of b: 200 ad", legs: "a draining 0s, b fill 1ms", took: ms, asked: "b",
	},
	{
		name: "an SSP that drains", mode: ParallelAll, drains: true, ssps: []reply{fills(0, "other"), fills(0, "ad")},
		result: `merged: 200 {"results":[{"ssp":"a","error":"draining","ms":0},{"ssp":"b","status":200,"ms":0,"body":"ad"}]}`, legs: "a draining 0s, b fill 0s", asked: "b",
	},

	{
		name: "each tier ends at its timeout", mode: Waterfall, ssps: []reply{silent, silent, fills(10*ms, "ad")}, change: tiers(80*ms, 40*ms),
		result: "fill of c: 200 ad", legs: "a deadline 80ms, b deadline 40ms, c fill 10ms", took: 130 * ms, asked: "abc",
	},
	{
		name: "the error names the tier's timeout", mode: Waterfall, ssps: []reply{silent}, change: tiers(50 * ms),
		result: "deadline of a", detail: "routes[].ssps[].timeout", legs: "a deadline 50ms", took: 50 * ms, asked: "a",
	},
	{
		name: "no leg starts after the deadline", mode: Waterfall, ssps: []reply{responses(100*ms, 500), silent, fills(0, "ad")},
		result: "server_error of a: 500 no ad for you", legs: "a server_error 100ms, b deadline 200ms", took: deadline, asked: "ab",
	},
	{
		name: "the client closes between two tiers", mode: Waterfall, ssps: []reply{responses(20*ms, 500), fills(0, "ad")},
		change: func(_ *testing.T, _ *Route, r *client) {
			r.Gone = func() bool { return time.Since(r.Received) >= 10*ms }
		},
		result: "client_gone of a", legs: "a server_error 20ms", took: 20 * ms, asked: "a",
	},
	{
		name: "a tier finds the client closed", mode: Waterfall, ssps: []reply{fails(0, exchange.ClientGone), fills(0, "ad")},
		result: "client_gone of a", legs: "a client_gone 0s", asked: "a",
	},
	{
		name: "HEAD", mode: Waterfall, ssps: []reply{responses(0, 204), {status: 200}},
		change: func(_ *testing.T, _ *Route, r *client) { r.Method = exchange.HEAD },
		result: "fill of b: 200", legs: "a no_bid 0s, b fill 0s", asked: "ab",
	},

	{ // The 204 has neither the document nor the fields that describe it, but those about CORS.
		name: "a document without an ad", mode: Waterfall, noBidBody: ssp.NoBidVAST, ssps: []reply{fails(0, exchange.ConnLost), {status: 200, body: "<VAST/>", fields: "Content-Type: text/xml\r\naccess-control-allow-origin:*\r\nETag: 1\r\nVary: Origin\r\n"}},
		result: "no_bid of b: 204", legs: "a conn_lost 0s, b no_bid 0s", asked: "ab",
	},
	{
		name: "a document without an ad", mode: ParallelFirst, noBidBody: ssp.NoBidVAST, ssps: []reply{fails(0, exchange.ConnLost), {status: 200, body: "<VAST/>", fields: "Content-Type: text/xml\r\naccess-control-allow-origin:*\r\nETag: 1\r\nVary: Origin\r\n"}},
		result: "no_bid of b: 204", legs: "a conn_lost 0s, b no_bid 0s", asked: "ab",
	},
	{
		name: "the first fill ends the other legs", mode: ParallelFirst, ssps: []reply{silent, fills(120*ms, "slow"), fills(40*ms, "ad"), responses(20*ms, 204)},
		result: "fill of c: 200 ad", legs: "a cancelled 40ms, b cancelled 40ms, c fill 40ms, d no_bid 20ms", took: 40 * ms, asked: "abcd",
	},
	{
		name: "deadline", mode: ParallelFirst, ssps: []reply{silent, silent},
		result: "deadline of a", legs: "a deadline 300ms, b deadline 300ms", took: deadline, asked: "ab",
	},
	{
		name: "a leg over the limit", mode: ParallelFirst, ssps: []reply{responses(10*ms, 500), fills(20*ms, "ad"), fills(0, "ad")}, limit: 3,
		result: "fill of b: 200 ad", legs: "a server_error 10ms, b fill 20ms, c overloaded 0s", took: 20 * ms, asked: "ab",
	},
	{
		name: "all legs over the limit", mode: ParallelFirst, ssps: []reply{fills(0, "ad")}, limit: 1,
		result: "overloaded of a", detail: "1 of 1 requests and legs are in flight; see server.max_in_flight", legs: "a overloaded 0s",
	},
	{
		name: "a copy that does not fit", mode: ParallelFirst, ssps: []reply{fills(0, "ad")},
		change: func(t *testing.T, _ *Route, r *client) {
			r.set(t, exchange.POST, "q", strings.Repeat("b", 100))
			r.Budget = exchange.NewBudget(100)
		},
		result: "overloaded", detail: "0 of 100 are held for all requests and responses; see server.max_buffered_bytes",
	},
	{
		name: "the client closes", mode: ParallelFirst, ssps: []reply{silent, fails(30*ms, exchange.ClientGone)},
		result: "client_gone of b", legs: "a cancelled 30ms, b client_gone 30ms", took: 30 * ms, asked: "ab",
	},
	{
		name: "a leg panics", mode: ParallelFirst, ssps: []reply{{after: 10 * ms, body: "x", panics: true}, fills(20*ms, "ad")},
		result: "fill of b: 200 ad", legs: "a internal 0s, b fill 20ms", took: 20 * ms, asked: "ab", panics: 1,
	},

	{
		name: "every response, in the route's order", mode: ParallelAll, change: tiers(0, 0, 150*ms),
		ssps: []reply{
			{after: 12 * ms, status: 200, fields: jsonType, body: `{"id": 1, "seatbid":[]}`},
			{after: 9 * ms, status: 204},
			silent,
			{after: 90*ms + 999*time.Microsecond, status: 503, fields: "content-type: text/plain\r\n", body: "\"tired\"\n"},
			{after: ms, status: 200, fields: jsonType + "Content-Encoding: gzip\r\n", body: "\x1f\x8b\x08"},
			fails(ms, exchange.ConnLost),
		},
		result: `merged: 200 {"results":[` +
			`{"ssp":"a","status":200,"ms":12,"content_type":"application/json","body":{"id": 1, "seatbid":[]}},` +
			`{"ssp":"b","status":204,"ms":9},` +
			`{"ssp":"c","error":"deadline","ms":150},` +
			`{"ssp":"d","status":503,"ms":90,"content_type":"text/plain","body":"\"tired\"\n"},` +
			`{"ssp":"e","status":200,"ms":1,"content_type":"application/json","body_base64":"H4sI"},` +
			`{"ssp":"f","error":"conn_lost","ms":1}]}`,
		legs: "a fill 12ms, b no_bid 9ms, c deadline 150ms, d server_error 90.999ms, e fill 1ms, f conn_lost 1ms", took: 150 * ms, asked: "abcdef",
	},
	{
		name: "secondaries are not waited for", mode: ParallelAll, secondary: "ac", ssps: []reply{fills(60*ms, "!"), fills(20*ms, "x"), fills(30*ms, "z"), fills(50*ms, "y")},
		result: `merged: 200 {"results":[{"ssp":"a","error":"not_waited"},{"ssp":"b","status":200,"ms":20,"body":"x"},` +
			`{"ssp":"c","status":200,"ms":30,"body":"z"},{"ssp":"d","status":200,"ms":50,"body":"y"}]}`,
		legs: "a cancelled 50ms, b fill 20ms, c fill 30ms, d fill 50ms", took: 50 * ms, asked: "abcd",
	},
	{
		name: "secondaries beside one primary", mode: ParallelAll, secondary: "bc", ssps: []reply{fills(20*ms, "x"), silent, responses(10*ms, 204)},
		result: `merged: 200 {"results":[{"ssp":"a","status":200,"ms":20,"body":"x"},{"ssp":"b","error":"not_waited"},{"ssp":"c","status":204,"ms":10}]}`,
		legs:   "a fill 20ms, b cancelled 20ms, c no_bid 10ms", took: 20 * ms, asked: "abc",
	},
	{
		name: "a leg finds the client closed", mode: ParallelAll, ssps: []reply{fails(ms, exchange.ClientGone), fills(2*ms, "x")},
		result: "client_gone", legs: "a client_gone 1ms, b fill 2ms", took: 2 * ms, asked: "ab",
	},
	{
		name: "the last leg finds the client closed", mode: ParallelAll, ssps: []reply{fills(ms, "x"), fails(ms, exchange.ClientGone)},
		result: "client_gone", legs: "a fill 1ms, b client_gone 1ms", took: ms, asked: "ab",
	},
	{
		name: "legs panic", mode: ParallelAll, ssps: []reply{{body: "x", panics: true}, fills(ms, "x"), {body: "x", panics: true}},
		result: `merged: 200 {"results":[{"ssp":"a","error":"internal","ms":0},{"ssp":"b","status":200,"ms":1,"body":"x"},{"ssp":"c","error":"internal","ms":0}]}`,
		legs:   "a internal 0s, b fill 1ms, c internal 0s", took: ms, asked: "abc", panics: 2,
	},
	{ // The legs are counted in order.
		name: "the last leg is over the limit", mode: ParallelAll, limit: 3, ssps: []reply{fills(ms, "x"), fills(ms, "x"), fills(ms, "x")},
		result: `merged: 200 {"results":[{"ssp":"a","status":200,"ms":1,"body":"x"},{"ssp":"b","status":200,"ms":1,"body":"x"},{"ssp":"c","error":"overloaded","ms":0}]}`,
		legs:   "a fill 1ms, b fill 1ms, c overloaded 0s", took: ms, asked: "ab",
	},
	{
		name: "all legs are over the limit", mode: ParallelAll, limit: 1, ssps: []reply{fills(ms, "x"), fills(ms, "x")},
		result: `merged: 200 {"results":[{"ssp":"a","error":"overloaded","ms":0},{"ssp":"b","error":"overloaded","ms":0}]}`,
		legs:   "a overloaded 0s, b overloaded 0s",
	},
	{
		name: "no leg is over the limit", mode: ParallelAll, limit: 3, ssps: []reply{fills(ms, "x"), fills(ms, "x")},
		result: `merged: 200 {"results":[{"ssp":"a","status":200,"ms":1,"body":"x"},{"ssp":"b","status":200,"ms":1,"body":"x"}]}`,
		legs:   "a fill 1ms, b fill 1ms", took: ms, asked: "ab",
	},
}

// tiersWithoutAFill has each end of a tier after which a waterfall continues.
func tiersWithoutAFill() (tests []resultTest) {
	ends := []reply{responses(20*ms, 204), {after: 20 * ms, status: 200}, responses(20*ms, 302), responses(20*ms, 404), responses(20*ms, 503)}
	for _, o := range []exchange.Outcome{
		exchange.ConnLost, exchange.BadResponse, exchange.TLSFailed, exchange.ResponseTooLarge, exchange.Overloaded, exchange.Draining, exchange.BreakerOpen,
		exchange.PendingFull, exchange.Deadline, exchange.Internal, exchange.SSPBackoff, exchange.ConnectFailed,
	} {
		ends = append(ends, fails(20*ms, o))
	}
	for i, end := range ends {
		tests = append(tests, resultTest{
			name: fmt.Sprint("tier without a fill ", i), mode: Waterfall, ssps: []reply{end, fills(30*ms, "ad"), fills(0, "late")},
			result: "fill of b: 200 ad", legs: anyLegs, took: 50 * ms, asked: "ab",
		})
	}
	return tests
}

// A panic of a waterfall's tier reaches the caller, and releases the response of the tier before.
func TestATierThatPanicsLeavesNoBytesHeld(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		rt, r := newRoute(Waterfall, newFake(t, "a", reply{status: 404, body: "not here"}), newFake(t, "b", reply{body: "x", panics: true})), get(t)
		r.Budget = exchange.NewBudget(1 << 20)
		defer func() {
			testsupport.True(t, recover() != nil, "no panic")
			testsupport.Equal(t, r.Budget.Used(), 0, "%d bytes are held")
		}()
		rt.Do(&r.Request, nil, newProcess(t))
	})
}

func TestResultsOfEachMode(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for _, tt := range slices.Concat(resultTests, tiersWithoutAFill()) {
			tt.run(t)
			testsupport.MustTrue(t, !t.Failed(), "mode %v, %s", tt.mode, tt.name)
		}
	})
}

func (tt *resultTest) run(t *testing.T) {
	var fakes []*fakeSSP
	for i, reply := range tt.ssps {
		fakes = append(fakes, newFake(t, "abcdef"[i:i+1], reply, func(o *ssp.Options) { o.NoBidBody = tt.noBidBody }))
	}
	fakes[0].pool.SetState(tt.state)
	if tt.drains {
		fakes[0].pool.Close(t.Context())
	}
	rt, r, p := newRoute(tt.mode, fakes...), get(t), newProcess(t)
	for i, f := range fakes {
		rt.Targets[i].Secondary = strings.Contains(tt.secondary, f.Name())
	}
	rt.ready()
	var panics atomic.Int64
	if tt.panics > 0 {
		p.Panicked = func(v any, stack []byte) {
			if panics.Add(1); v != "the connection is broken" || len(stack) == 0 {
				t.Errorf("the panic %v is reported with the stack %q", v, stack)
			}
		}
	}
	p.InFlight.SetLimit(tt.limit)
	p.InFlight.Acquire()
	defer p.InFlight.Release()
	if tt.change != nil {
		tt.change(t, rt, r)
	}
	res := rt.Do(&r.Request, nil, p)
	testsupport.Equal(t, time.Since(r.Received), tt.took, "took %v")
	want(t, "result", ended(&res), tt.result)
	if tt.legs != anyLegs {
		want(t, "legs", legsOf(&res), tt.legs)
	}
	testsupport.True(t, tt.detail == "" || res.Err != nil && strings.Contains(res.Err.Error(), tt.detail), "the error is %v, want %q in it", res.Err, tt.detail)

	if res.Outcome == exchange.NoBid && tt.mode >= Waterfall {
		a, fields := &res.Exchange.Response, ""
		if tt.noBidBody == ssp.NoBidVAST {
			fields = "access-control-allow-origin:*\r\nVary: Origin\r\n"
		}
		testsupport.True(t, string(a.Fields) == fields && a.ContentLength < 0, "the 204 has the fields %q and the length %d", a.Fields, a.ContentLength)
	}

	synctest.Wait() // abandoned legs end now, not later
	if n := p.InFlight.Now(); n != 1 || panics.Load() != tt.panics {
		t.Errorf("%d are in flight, want the request alone; %d panics were reported", n, panics.Load())
	}
	asked := ""
	for _, f := range fakes {
		for _, q := range f.requests() {
			asked += f.Name()
			testsupport.True(t, q.at.Equal(r.Received) || tt.mode != ParallelFirst && tt.mode != ParallelAll, "%s received its request after %v", f.Name(), q.at.Sub(r.Received))
		}
	}
	want(t, "asked", asked, tt.asked)
	for i, l := range res.Legs() {
		n := fakes[i].counted(l.Outcome)
		testsupport.True(t, n == 1 || l.Outcome == exchange.Internal, "%s counted %d requests as %v", fakes[i].Name(), n, l.Outcome)
	}
	res.Release()
	testsupport.True(t, res.Exchange == nil && res.Status() == 0, "the result has a response after its release")
	wantEmpty(t, r.Budget)
}

// The reader of a shared connection notes when it has read a response. The caller may run much later if all CPU is
// busy, and the duration of the request must show that.
func TestOnlyAConnectionOfItsOwnSaysWhenARequestEnded(t *testing.T) {
	for p, known := range map[exchange.Protocol]bool{exchange.HTTP1: true, exchange.HTTP1Pipelined: false, exchange.HTTP2: false} {
		testsupport.Bubble(t, func(t *testing.T) {
			a := newFake(t, "a", silent)
			a.script = func(ex *exchange.Exchange) reply {
				ex.Protocol = p
				return fills(ms, "ad")
			}
			res := newRoute(Single, a).Do(&get(t).Request, nil, newProcess(t))
			defer res.Release()
			testsupport.Equal(t, !res.At.IsZero(), known, "%[2]v: the end of the request is known: %[1]v", p)
		})
	}
}

// A retry stays within the time of its tier.
func TestTimeoutOfATierCoversItsRetries(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", silent, func(o *ssp.Options) { o.RetryMax = 5 })
		tries := 0
		a.script = func(*exchange.Exchange) reply {
			tries++
			return reply{after: 30 * ms, err: &exchange.Error{Outcome: exchange.ConnLost, Progress: exchange.NotSent}}
		}
		b := newFake(t, "b", fills(0, "ad"))
		rt := newRoute(Waterfall, a, b)
		rt.Targets[0].Timeout = 70 * ms
		r := get(t)
		res := rt.Do(&r.Request, nil, newProcess(t))
		defer res.Release()
		want(t, "legs", legsOf(&res), "a deadline 70ms, b fill 0s")
		testsupport.Equal(t, tries, 3, "tried %d times in 70 ms at 30 ms each")
	})
}

// One leg is no fan-out: only the request itself counts as in flight.
func TestSequentialModesCountNoLegs(t *testing.T) {
	for _, mode := range []Mode{Single, Split, Waterfall} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, p := newFake(t, "a", silent), newProcess(t)
			a.script = func(*exchange.Exchange) reply {
				testsupport.Equal(t, p.InFlight.Now(), 0, "%d legs in flight")
				return fills(0, "ad")
			}
			res := newRoute(mode, a).Do(&get(t).Request, nil, p)
			want(t, "result", ended(&res), "fill of a: 200 ad")
			res.Release()
		})
	}
}
