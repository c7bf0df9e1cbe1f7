package route

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

// in is the condition that the member at path is one of texts.
func in(t testing.TB, path string, texts ...string) []openrtb.Condition {
	t.Helper()
	c := openrtb.Condition{Path: openrtb.MustParsePath(path)}
	for _, text := range texts {
		v, err := openrtb.ParseValue([]byte(text))
		testsupport.NoError(t, err)
		c.Values = append(c.Values, v)
	}
	return []openrtb.Condition{c}
}

// examined returns a request whose body the table of rt has examined.
func examined(t testing.TB, table *Table, body string) *client {
	t.Helper()
	r := newClient(t, exchange.POST, "", body)
	s := new(Search)
	table.Examine(&r.fields, r.body, s)
	r.Facts = s.Facts()
	return r
}

// An SSP whose conditions do not hold gets no request, and its part of the request is filtered.
func TestSSPsWhoseConditionsDoNotHoldAreNotAsked(t *testing.T) {
	// a wants DEU, b AUT, c either.
	for _, tt := range []struct {
		mode    Mode
		country string
		want    string
		legs    string
		asked   string // names of the SSPs
	}{
		{Single, "DEU", "fill of a: 200 a", "", "a"},
		{Single, "AUT", "fill of b: 200 b", "a filtered, b fill", "b"},
		{Single, "FRA", "filtered", "a filtered, b filtered, c filtered", ""},
		{Split, "DEU", "fill of a: 200 a", "", "a"},
		{Split, "AUT", "fill of b: 200 b", "a filtered, b fill", "b"},
		{Split, "FRA", "filtered", "a filtered", ""},
		{Waterfall, "DEU", "fill of a: 200 a", "a fill", "a"},
		{Waterfall, "AUT", "fill of b: 200 b", "a filtered, b fill", "b"},
		{Waterfall, "FRA", "filtered", "a filtered, b filtered, c filtered", ""},
		{ParallelFirst, "AUT", "fill of b: 200 b", "a filtered, b fill, c cancelled", "bc"},
		{ParallelFirst, "FRA", "filtered", "a filtered, b filtered, c filtered", ""},
		{ParallelAll, "DEU", `merged: 200 {"results":[{"ssp":"a","status":200,"ms":1,"body":"a"},{"ssp":"b","error":"filtered"},{"ssp":"c","error":"not_waited"}]}`, "a fill, b filtered, c cancelled", "ac"},
		{ParallelAll, "FRA", "filtered", "a filtered, b filtered, c filtered", ""},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, b, c := newFake(t, "a", fills(ms, "a")), newFake(t, "b", fills(ms, "b")), newFake(t, "c", fills(10*ms, "c"))
			rt := &Route{Name: "r", Mode: tt.mode, Targets: []Target{
				{SSP: a.SSP, Weight: 1, When: in(t, "device.geo.country", `"DEU"`)},
				{SSP: b.SSP, Weight: 1, When: in(t, "device.geo.country", `"AUT"`)},
				{SSP: c.SSP, When: in(t, "device.geo.country", `"AUT"`, `"DEU"`), Secondary: tt.mode == ParallelAll},
			}}
			table := NewTable([]*Route{rt})
			rt.draw = func(int) int { return 0 }
			r := examined(t, table, `{"device":{"geo":{"country":"`+tt.country+`"}}}`)
			res := rt.Do(&r.Request, nil, newProcess(t))
			name := fmt.Sprint(tt.mode, " ", tt.country)
			want(t, name, ended(&res), tt.want)
			want(t, name+", legs", outcomesOfLegs(&res), tt.legs)
			res.Release()
			for _, f := range []*fakeSSP{a, b, c} {
				n := 0
				if strings.Contains(tt.asked, f.SSP.Name()) {
					n = 1
				}
				f.wantRequests(n)
			}
			wantEmpty(t, r.Budget)
		})
	}
}

// dropping makes the shaper of an SSP drop all requests: their rate in the last second was above the limit.
func dropping(o *ssp.Options) {
	o.QPS = ssp.QPSOptions{Limit: 1e-6, Burst: 1, Shaped: true}
	o.Shape = ssp.ShapeOptions{Keys: []string{"query:slot"}, Explore: 0.005}
}

// An SSP whose shaper drops the request gets no request. Single, Split and the client's choice end there, and the other
// modes do without the SSP.
func TestSSPsThatDropTheRequestAreNotAsked(t *testing.T) {
	// With these, the mode is ParallelAll and b is secondary.
	const secondary, merge Mode = "secondary", "merge"
	const bid = `{"id":"1","seatbid":[{"bid":[{"id":"1","impid":"1","price":1}]}]}`
	lost := fails(ms, exchange.ConnLost)
	for _, tt := range []struct {
		mode  Mode
		b     reply
		drops string // names of the SSPs
		want  string
		legs  string
	}{
		{Single, fills(ms, "b"), "a", "shaped of a", ""},
		{Split, fills(ms, "b"), "a", "shaped of a", ""},
		{Waterfall, fills(ms, "b"), "a", "fill of b: 200 b", "a shaped, b fill"},
		{Waterfall, lost, "a", "conn_lost of b", "a shaped, b conn_lost"},
		{Waterfall, lost, "b", "fill of a: 200 a", "a fill"},
		{Waterfall, lost, "ab", "shaped of a", "a shaped, b shaped"},
		{ParallelFirst, fills(ms, "b"), "a", "fill of b: 200 b", "a shaped, b fill"},
		{ParallelFirst, lost, "a", "conn_lost of b", "a shaped, b conn_lost"},
		{ParallelFirst, lost, "ab", "shaped of a", "a shaped, b shaped"},
		{ParallelAll, fills(ms, "b"), "a", `merged: 200 {"results":[{"ssp":"a","error":"shaped"},{"ssp":"b","status":200,"ms":1,"body":"b"}]}`, "a shaped, b fill"},
		{ParallelAll, lost, "ab", "shaped", "a shaped, b shaped"},
		{secondary, fills(20*ms, bid), "a", `merged: 200 {"results":[{"ssp":"a","error":"shaped"},{"ssp":"b","status":200,"ms":20,"body":` + strconv.Quote(bid) + `}]}`, "a shaped, b fill"},
		{secondary, fills(20*ms, bid), "b", `merged: 200 {"results":[{"ssp":"a","status":200,"ms":1,"body":"a"},{"ssp":"b","error":"shaped"}]}`, "a fill, b shaped"},
		{secondary, lost, "ab", "shaped", "a shaped, b shaped"},
		{merge, fills(20*ms, bid), "a", `merged: 200 {"id":"1","seatbid":[{"bid":[{"id":"1","impid":"1","price":1}]}],"cur":"USD","ext":{"seatnonbid":[{"seat":"a","nonbid":[]}]}}`, "a shaped, b fill"},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			rt := &Route{Name: "r", Mode: tt.mode}
			if tt.mode == secondary || tt.mode == merge {
				rt.Mode, rt.MergeOpenRTB = ParallelAll, tt.mode == merge
			}
			for name, reply := range map[string]reply{"a": fills(ms, "a"), "b": tt.b} {
				change := func(*ssp.Options) {}
				if strings.Contains(tt.drops, name) {
					change = dropping
				}
				rt.Targets = append(rt.Targets, Target{SSP: newFake(t, name, reply, change).SSP, Weight: 1, Secondary: tt.mode != rt.Mode && name == "b"})
				one := &Route{Name: "one", Targets: rt.Targets[len(rt.Targets)-1:]}
				for range 3 { // the rate
					res := one.Do(&newClient(t, exchange.GET, "", "").Request, nil, newProcess(t))
					res.Release()
				}
			}
			slices.SortFunc(rt.Targets, func(x, y Target) int { return strings.Compare(x.SSP.Name(), y.SSP.Name()) })
			time.Sleep(time.Second)
			NewTable([]*Route{rt})
			rt.draw = func(int) int { return 0 }
			r := newClient(t, exchange.POST, "", `{"id":"1"}`)
			res := rt.Do(&r.Request, nil, newProcess(t))
			name := fmt.Sprint(tt.mode, " without ", tt.drops)
			want(t, name, ended(&res), tt.want)
			want(t, name+", legs", outcomesOfLegs(&res), tt.legs)
			res.Release()
			wantEmpty(t, r.Budget)
		})
	}
}

// If no primary SSP gets the request, the response of parallel-all waits for the secondary SSPs.
func TestSecondariesAreAwaitedIfNoPrimaryIsAsked(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a, b, c := newFake(t, "a", fills(0, "a")), newFake(t, "b", fills(10*ms, "b")), newFake(t, "c", fills(20*ms, "c"))
		rt := &Route{Name: "r", Mode: ParallelAll, Targets: []Target{{SSP: b.SSP, Secondary: true}, {SSP: a.SSP, When: in(t, "x", "1")}, {SSP: c.SSP, Secondary: true}}}
		table := NewTable([]*Route{rt})
		r := examined(t, table, `{"x":2}`)
		ask(t, rt, r, nil, `merged: 200 {"results":[{"ssp":"b","status":200,"ms":10,"body":"b"},{"ssp":"a","error":"filtered"},{"ssp":"c","status":200,"ms":20,"body":"c"}]}`)
	})
}

func TestSSPThatTheClientChoseIsFilteredToo(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", fills(0, "a"))
		rt := &Route{Name: "r", Targets: []Target{{SSP: a.SSP, When: in(t, "x", "1")}}}
		table := NewTable([]*Route{rt})
		ask(t, rt, examined(t, table, `{"x":2}`), &rt.Targets[0], "filtered")
		a.wantRequests(0)
		ask(t, rt, examined(t, table, `{"x":1}`), &rt.Targets[0], "fill of a: 200 a")
	})
}

// The search stops at a route whose conditions on the body are all that remains to check, and examines the body
// once for all routes.
func TestRoutesAreFoundByTheBody(t *testing.T) {
	a := Target{SSP: newFake(t, "a", silent).SSP}
	route := func(path string, conditions ...openrtb.Condition) *Route {
		return &Route{Name: path, Match: Match{Path: path, OpenRTB: conditions}, Targets: []Target{a}}
	}
	table := NewTable([]*Route{
		route("/b", in(t, "x", "1")...), route("/b", in(t, "x", "2")...), route("/a"), route("/b"),
	})
	for _, tt := range []struct {
		path, body string
		lines      []string
		route      int // -1 = none
		reads      bool
	}{
		{"/a", `{"x":1}`, nil, 2, false},
		{"/c", `{"x":1}`, nil, -1, false},
		{"/b", `{"x":1}`, nil, 0, true},
		{"/b", `{"x":2}`, []string{"Content-Encoding: Identity", "Content-Type: text/plain"}, 1, true},
		{"/b", `{"x":3}`, nil, 3, true},
		{"/b", ``, nil, 3, true},
		{"/b", `{"x":1}`, []string{"Content-Encoding: gzip"}, 3, true},
		{"/b", `{"x":1}`, []string{"Content-Type: application/x-Protobuf; v=1"}, 3, true},
		{"/b", `{"x":1,"x":1}`, nil, 3, true},
	} {
		s := new(Search)
		f := lookup(t, "h", tt.path, tt.lines...)
		rt, _ := table.Find(f, s)
		testsupport.True(t, s.NeedsBody == tt.reads && (!s.NeedsBody || rt == nil), "%s: needs the body: %v, route %v", tt.path, s.NeedsBody, rt)
		if s.NeedsBody {
			table.Examine(f, []byte(tt.body), s)
			rt, _ = table.Find(f, s)
		}
		var want *Route
		if tt.route >= 0 {
			want = table.Routes[tt.route]
		}
		testsupport.True(t, rt == want, "%s %s %v: route %v, want %d", tt.path, tt.body, tt.lines, rt, tt.route)
	}
}

// A share of the requests that match goes on to the next route, each of them drawn once.
func TestHoldbackGoesOnToTheNextRoute(t *testing.T) {
	a := Target{SSP: newFake(t, "a", silent).SSP}
	table := NewTable([]*Route{
		{Match: Match{Path: "/", Holdback: 0.5}, Targets: []Target{a}},
		{Match: Match{Path: "/", OpenRTB: in(t, "x", "1"), Holdback: 0.5}, Targets: []Target{a}},
		{Match: Match{Path: "/"}, Targets: []Target{a}},
	})
	f := lookup(t, "h", "/")
	var found [3]int
	const n = 4000
	for range n {
		s := new(Search)
		rt, _ := table.Find(f, s)
		if s.NeedsBody {
			table.Examine(f, []byte(`{"x":1}`), s)
			rt, _ = table.Find(f, s)
		}
		found[rt.Index]++
	}
	for i, share := range []int{n / 2, n / 4, n / 4} { // the standard deviation is 32 at most
		testsupport.True(t, found[i] >= share-250 && found[i] <= share+250, "route %d got %d of %d requests, want %d", i, found[i], n, share)
	}
	s := &Search{Explaining: true}
	rt, _ := table.Find(f, s)
	testsupport.True(t, rt != nil && rt.Index == 0, "an explanation finds %v", rt)
}

// outcomesOfLegs returns the SSPs and outcomes of a result's legs.
func outcomesOfLegs(res *Result) string {
	var legs []string
	for _, l := range res.Legs() {
		legs = append(legs, l.SSP+" "+l.Outcome.String())
	}
	return strings.Join(legs, ", ")
}

// A body whose members have the wrong types for the sets of an SSP leaves that SSP out. The edits of the other SSPs, and of
// the mirror, do not matter. If no SSP is left, the client is to blame only if an SSP's conditions hold that might have been
// asked.
func TestSSPsWhoseSetsDoNotFitAreNotAsked(t *testing.T) {
	appends := func(path string) func(*ssp.Options) {
		return func(o *ssp.Options) {
			o.MaxBodyBytes = 1000
			o.Edit = openrtb.NewEdit(nil, openrtb.Set{Path: openrtb.MustParsePath(path), How: openrtb.Append, Value: []byte("1")})
		}
	}
	for _, tt := range []struct {
		body, want, legs string
		a, b, mirror     string // the bodies that they get
	}{
		{`{"x":[]}`, "fill of a: 200 a", "", `{"x":[1]}`, "", `{"x":[],"z":[1]}`},
		{`{"x":2}`, "fill of b: 200 b", "a filtered, b fill", "", `{"x":2,"y":[1]}`, `{"x":2,"z":[1]}`},
		{`{"x":2,"y":[],"z":3}`, "fill of b: 200 b", "a filtered, b fill", "", `{"x":2,"y":[1],"z":3}`, ""},
		{`{"x":{},"y":{}}`, "bad_request: ssps[].set cannot change the body", "a filtered, b filtered", "", "", `{"x":{},"y":{},"z":[1]}`},
		{`{"z":1,"z":2}`, "bad_request: ssps[].remove and set cannot read the body", "a filtered, b filtered", "", "", ""},
		{`{"z":3,"skip":"ab"}`, "filtered", "a filtered, b filtered", "", "", ""},
		{`{"y":3,"skip":"a"}`, "bad_request: ssps[].set cannot change the body", "a filtered, b filtered", "", "", `{"y":3,"skip":"a","z":[1]}`},
		{`{"y":3,"skip":"a","choose":"a"}`, "filtered", "a filtered", "", "", `{"y":3,"skip":"a","choose":"a","z":[1]}`},
		{`{"x":3,"choose":"a"}`, "bad_request: ssps[].set cannot change the body", "a filtered", "", "", `{"x":3,"choose":"a","z":[1]}`},
		{`{"y":3,"skip":"a","split":1}`, "filtered", "a filtered", "", "", `{"y":3,"skip":"a","split":1,"z":[1]}`},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, b, m := newFake(t, "a", fills(ms, "a"), appends("x")), newFake(t, "b", fills(ms, "b"), appends("y")), newFake(t, "m", fills(ms, "m"), appends("z"))
			rt := mirroring(a, m, 1, 1<<20)
			notSkipped := func(names ...string) []openrtb.Condition {
				all := in(t, "skip", names...)
				all[0].Not = true
				return all
			}
			rt.Targets = []Target{{SSP: a.SSP, Weight: 1, When: notSkipped(`"a"`, `"ab"`)}, {SSP: b.SSP, When: notSkipped(`"ab"`)}} // split never asks b
			if strings.Contains(tt.body, `"split"`) {
				rt.Mode = Split
			}
			table := NewTable([]*Route{rt})
			r := examined(t, table, tt.body)
			var chosen *Target
			if strings.Contains(tt.body, `"choose"`) {
				chosen = &rt.Targets[0]
			}
			var f openrtb.Facts
			r.Misfits = rt.ScanEdits(r.Body, &f)
			r.Unreadable = f.Reason
			res := rt.Do(&r.Request, chosen, newProcess(t))
			got := ended(&res)
			if res.Outcome == exchange.BadRequest {
				got += ": " + res.Err.Detail
			}
			testsupport.True(t, strings.HasPrefix(got, tt.want), "%s: %s, want %s", tt.body, got, tt.want)
			want(t, tt.body+", legs", outcomesOfLegs(&res), tt.legs)
			res.Release()
			time.Sleep(time.Second)
			for f, body := range map[*fakeSSP]string{a: tt.a, b: tt.b, m: tt.mirror} {
				n := min(len(body), 1)
				f.wantRequests(n)
				if n > 0 && len(f.received) > 0 {
					want(t, f.SSP.Name()+"'s body", f.received[0].body, body)
				}
			}
		})
	}
}
