//go:build !race

package route

import (
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// TestModesAllocateLittle bounds the allocations of a request in each mode. The pools are warm, and
// the connections' own allocations do not count.
func TestModesAllocateLittle(t *testing.T) {
	body := `{"id":"1","seatbid":[{"bid":[{"price":1.25,"adm":"<VAST version=\"4.2\"><Ad/></VAST>"}]}]}`
	quiet := func(name string, r reply) *fakeSSP {
		f := newFake(t, name, r)
		f.quiet = true
		return f
	}
	bids := func() []*fakeSSP {
		return []*fakeSSP{
			quiet("a", reply{status: 200, fields: jsonType, body: body}), quiet("b", reply{status: 204}),
			quiet("c", reply{status: 200, fields: "Content-Type: text/xml\r\n", body: `<VAST version="4.2"/>`}),
			quiet("d", reply{status: 200, fields: jsonType + "Content-Encoding: gzip\r\n", body: "\x1f\x8b\x08"}),
		}
	}
	tiers := []*fakeSSP{quiet("a", responses(0, 204)), quiet("b", responses(0, 503)), quiet("c", fills(0, body))}
	for _, tt := range []struct {
		name string
		rt   *Route
		most float64
		want exchange.Outcome
	}{
		{"single", newRoute(Single, tiers[2]), 0, exchange.Fill},
		{"split", newRoute(Split, tiers[2], tiers[2]), 0, exchange.Fill},
		{"waterfall", newRoute(Waterfall, tiers...), 0, exchange.Fill},
		{"single, mirrored", mirroring(tiers[2], quiet("m", fills(0, body)), 1, 1<<20), 0, exchange.Fill},
		{"single, mirror over its budget", mirroring(tiers[2], quiet("m", silent), 1, 1), 0, exchange.Fill},
		{"parallel-all over 4", all(bids()), 0, exchange.Merged},
		{"parallel-all over 4, of them 2 secondary", all(bids(), false, false, true, true), 8, exchange.Merged},
		{"parallel-first over 4", newRoute(ParallelFirst, bids()...), 8, exchange.Fill},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newClient(t, exchange.POST, "a=1&b=2", body, "User-Agent: phone", "Cookie: id=1")
			p := &Process{InFlight: new(ssp.InFlight)}
			n := testing.AllocsPerRun(200, func() {
				r.Received = time.Now()
				r.Deadline = r.Received.Add(time.Minute)
				res := tt.rt.Do(&r.Request, nil, p)
				if res.Outcome != tt.want {
					t.Fatalf("result: %s", ended(&res))
				}
				res.Release()
				for r.Budget.Used() > 0 || tt.rt.Mirror != nil && tt.rt.Mirror.Stats.inFlight.Load() > 0 {
					runtime.Gosched() // until abandoned legs and copies have ended, so that the next request can reuse their memory
				}
			})
			testsupport.True(t, n <= tt.most, "%v allocations, want at most %v", n, tt.most)
		})
	}
}
