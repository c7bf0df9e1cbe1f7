package route

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
)

// BenchmarkModes measures what a mode costs, with connections that cost nothing. parallel-first
// includes the copy of the request and the end of the abandoned legs.
func BenchmarkModes(b *testing.B) {
	bid := reply{status: 200, fields: jsonType, body: `{"id":"1","seatbid":[{"bid":[{"price":1.25,"adm":"` + strings.Repeat("x", 1000) + `"}]}]}`}
	var fakes []*fakeSSP
	for _, n := range []string{"a", "b", "c", "d"} {
		f := newFake(b, n, bid)
		f.quiet = true
		fakes = append(fakes, f)
	}
	for name, rt := range map[string]*Route{
		"single": newRoute(Single, fakes...), "split": newRoute(Split, fakes...), "waterfall": newRoute(Waterfall, fakes...),
		"parallel-first": newRoute(ParallelFirst, fakes...), "parallel-all": all(fakes), "parallel-all-secondary": all(fakes, true),
	} {
		b.Run(name, func(b *testing.B) {
			r := newClient(b, 0, "a=1&b=2", "", "User-Agent: phone", "Cookie: id=1")
			r.Budget = nil
			p := &Process{InFlight: new(ssp.InFlight)}
			b.ReportAllocs()
			for b.Loop() {
				r.Received = time.Now()
				r.Deadline = r.Received.Add(time.Minute)
				res := rt.Do(&r.Request, nil, p)
				res.Release()
			}
		})
	}
}

// BenchmarkMerge measures what merge: openrtb does with the responses of eight SSPs, of three bids each.
func BenchmarkMerge(b *testing.B) {
	bid := `{"id":"7","impid":"1","price":1.25,"w":320,"h":50,"adomain":["a.example"],"cat":["IAB1"],"crid":"c","adm":"` + strings.Repeat("x", 1000) + `"}`
	body := []byte(`{"id":"r1","bidid":"x","cur":"USD","seatbid":[{"seat":"s","bid":[` + bid + "," + bid + "," + bid + `]}]}`)
	r := newClient(b, exchange.POST, "", `{"id":"r1","imp":[{"id":"1"},{"id":"2"}]}`)
	r.Budget, r.Request.Budget = nil, nil
	f := fanout{legs: make([]leg, 8)}
	s := newFake(b, "a", reply{}).SSP
	for i := range f.legs {
		f.legs[i] = leg{target: &Target{SSP: s}, received: true, ex: exchange.AcquireExchange()}
		f.legs[i].ex.Response.Body = body
	}
	b.ReportAllocs()
	for b.Loop() {
		res := f.merged(&r.Request)
		if res.NoAd || res.Err != nil {
			b.Fatal(res.Err)
		}
		res.Release()
	}
}
