package route

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"adbuffer/internal/ssp"
	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

const bidRequest = `{"id":"r\u0031","imp":[{"id":"i1"},{"banner":{}},{"id":"i\"2"}],"cur":["EUR","USD"]}`

// bidResponse is a response to bidRequest with one seat, of any further members.
func bidResponse(seat, more string) reply {
	return reply{status: 200, fields: "Content-Type: text/plain\r\n", body: `{"id":"r1", "seatbid" : [ {"seat":"` + seat + `","bid":[{"impid":"i1","price":1.50}]} ]` + more + `}`}
}

func merging(ssps ...*fakeSSP) *Route {
	rt := all(ssps)
	rt.MergeOpenRTB = true
	return rt
}

// Each response beside a good one: its statuscode in seatnonbid, or 0 for a response that is merged.
func TestResponsesAreMergedIntoOneBidResponse(t *testing.T) {
	for name, tt := range map[string]struct {
		reply  reply
		status int
	}{
		"a bid":                      {bidResponse("x", `,"cur":"EUR"`), 0},
		"seatBid":                    {reply{status: 200, body: `{"cur":"EUR","seatBid":[{"seat":"x","bid":[{"impid":"i1","price":1.50}]}],"id":"\u0072\u0031"}`}, 0},
		"in gzip":                    {zipped(t, bidResponse("x", `,"cur":"EUR"`)), 0},
		"no currency, which is USD":  {bidResponse("x", ""), 300},
		"another currency":           {bidResponse("x", `,"cur":"GBP"`), 300},
		"an empty currency":          {bidResponse("x", `,"cur":""`), 300},
		"a currency that is no text": {bidResponse("x", `,"cur":7`), 102},
		"204":                        {reply{status: 204}, 100},
		"an empty body":              {reply{status: 200}, 100},
		"an empty object":            {reply{status: 200, body: `{}`}, 100},
		"no seats and a reason":      {reply{status: 200, body: `{"id":"r1","seatbid":[],"nbr":2}`}, 2},
		"the last reason":            {reply{status: 200, body: `{"id":"r1","nbr":17}`}, 17},
		"an unknown reason":          {reply{status: 200, body: `{"id":"r1","nbr":18}`}, 100},
		"another request's response": {reply{status: 200, body: `{"id":"r2","seatbid":[{"bid":[{}]}]}`}, 102},
		"no id":                      {reply{status: 200, body: `{"seatbid":[{"bid":[{}]}]}`}, 102},
		"an id twice":                {reply{status: 200, body: `{"id":"r1","id":"r1","seatbid":[{"bid":[{}]}]}`}, 102},
		"seatbid twice":              {reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[{}]}],"seatbid":[]}`}, 102},
		"OpenRTB 3":                  {reply{status: 200, body: `{"openrtb":{"response":{"id":"r1","seatbid":[{"bid":[{}]}]}}}`}, 102},
		"OpenRTB 3 beside a number":  {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":5,"openrtb":{"response":{"seatbid":[{"bid":[{}]}]}}}`}, 102},
		"OpenRTB 3 beside no seats":  {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[],"openrtb":{"response":{"seatbid":[{"bid":[{}]}]}}}`}, 102},
		"a seat that is no object":   {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[{"bid":[{}]},5]}`}, 102},
		"bids that are no array":     {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[{"bid":[{}]},{"bid":{}}]}`}, 102},
		"a bid that is no object":    {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[{"bid":[{},"x"]}]}`}, 102},
		"Bid that is no object":      {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[{"Bid":["x"]}]}`}, 102},
		"no JSON":                    {reply{status: 200, body: `<VAST/>`}, 102},
		"cut":                        {reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[{}]}]`}, 102},
		"no UTF-8":                   {reply{status: 200, body: "{\"id\":\"r1\",\"seatbid\":[{\"bid\":[{\"adm\":\"\xff\"}]}]}"}, 102},
		"a key twice in a bid":       {reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[{"x":1,"x":2}]}]}`}, 102},
		"another coding":             {reply{status: 200, fields: "Content-Encoding: br\r\n", body: "x"}, 102},
		"gzip that is none":          {reply{status: 200, fields: "Content-Encoding: gzip\r\n", body: "x"}, 102},
		"302":                        {reply{status: 302, body: "x"}, 102},
		"404":                        {reply{status: 404, body: "x"}, 102},
		"503":                        {reply{status: 503, body: "x"}, 102},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			limit := func(o *ssp.Options) { o.MaxResponseBytes = 1 << 10 }
			a, b, c := newFake(t, "a", bidResponse("a", `,"cur":"EUR"`), limit), newFake(t, "b", tt.reply, limit), newFake(t, "c", bidResponse("c", `,"cur":"EUR"`), limit)
			r := newClient(t, upstream.POST, "", bidRequest)
			res := merging(a, b, c).Do(&r.Request, nil, newProcess(t))
			seat := func(of string) string { return `{"seat":"` + of + `","bid":[{"impid":"i1","price":1.50}]}` }
			seats, nonBids := seat("a")+","+seat("x")+","+seat("c"), ""
			if tt.status != 0 {
				seats = seat("a") + "," + seat("c")
				nonBids = fmt.Sprintf(`{"seat":"b","nonbid":[{"impid":"i1","statuscode":%[1]d},{"impid":"i\"2","statuscode":%[1]d}]}`, tt.status)
			}
			want(t, name, ended(&res), `merged: 200 {"id":"r\u0031","seatbid":[`+seats+`],"cur":"EUR","ext":{"seatnonbid":[`+nonBids+`]}}`)
			testsupport.True(t, json.Valid(res.Exchange.Response.Body), "%s: no valid JSON", name)
			res.Release()
			wantEmpty(t, r.Budget)
		})
	}
}

func TestOneCurrencyIsMerged(t *testing.T) {
	for _, tt := range []struct{ cur, a, b, want string }{
		{`,"cur":["EUR","USD"]`, `,"cur":"USD"`, `,"cur":"EUR"`, "b EUR"},
		{`,"cur":["EUR","USD"]`, `,"cur":null`, `,"cur":"GBP"`, "a USD"},
		{`,"cur":[]`, `,"cur":"GBP"`, ``, "a GBP"},
		{``, `,"cur":"GBP"`, ``, "a GBP"},
		{``, ``, `,"cur":"\u0055SD"`, "ab USD"},
		{``, `,"cur":""`, ``, "ab USD"},
		{`,"cur":["","EUR"]`, ``, `,"cur":"EUR"`, "b EUR"},
		{`,"cur":["JPY"]`, ``, `,"cur":"GBP"`, "none"},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			a, b := newFake(t, "a", bidResponse("a", tt.a)), newFake(t, "b", bidResponse("b", tt.b))
			r := newClient(t, upstream.POST, "", `{"id":"r1","imp":[{"id":"i"}]`+tt.cur+`}`)
			res := merging(a, b).Do(&r.Request, nil, newProcess(t))
			got := "none"
			if !res.NoAd {
				var m struct {
					Seatbid []struct{ Seat string }
					Cur     string
				}
				testsupport.NoError(t, json.Unmarshal(res.Exchange.Response.Body, &m))
				got = ""
				for _, s := range m.Seatbid {
					got += s.Seat
				}
				got += " " + m.Cur
			}
			want(t, fmt.Sprint(tt), got, tt.want)
			res.Release()
		})
	}
}

// Without a bid the response is the route's no-ad, for the most telling cause.
func TestMergeWithoutABidIsANoAd(t *testing.T) {
	late := reply{status: 204, after: 2 * deadline}
	for _, tt := range []struct {
		a, b reply
		want upstream.Outcome
	}{
		{reply{status: 503, body: "x"}, reply{status: 204}, upstream.NoBid},
		{reply{status: 200, body: `{"id":"r1","nbr":2}`}, reply{status: 503, body: "x"}, upstream.NoBid},
		{reply{status: 503, body: "x"}, late, upstream.ServerError},
		{late, late, upstream.Deadline},
		{bidResponse("a", `,"cur":"GBP"`), late, upstream.BadResponse},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			r := newClient(t, upstream.POST, "", bidRequest)
			res := merging(newFake(t, "a", tt.a), newFake(t, "b", tt.b)).Do(&r.Request, nil, newProcess(t))
			testsupport.True(t, res.NoAd && res.NoAdFor == tt.want && res.Outcome == upstream.Merged && res.Err == nil, "no-ad %v for %v, want for %v", res.NoAd, res.NoAdFor, tt.want)
			res.Release()
			wantEmpty(t, r.Budget)
		})
	}
}

// An SSP that was not asked is no cause beside one that was.
func TestMergeWithoutABidNamesNoFilteredSSP(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		rt := merging(newFake(t, "a", silent), newFake(t, "b", reply{status: 503, body: "x"}))
		rt.Targets[0].When = in(t, "app", "1")
		r := examined(t, NewTable([]*Route{rt}), `{"id":"r1"}`)
		res := rt.Do(&r.Request, nil, newProcess(t))
		testsupport.True(t, res.NoAd && res.NoAdFor == upstream.ServerError, "no-ad %v for %v", res.NoAd, res.NoAdFor)
		res.Release()
	})
}

// SSPs that are late, not waited for, not asked or cannot be reached have their reasons.
func TestReasonsOfSSPsWithoutAResponse(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{newFake(t, "a", bidResponse("a", "")), newFake(t, "late", silent), newFake(t, "secondary", silent), newFake(t, "filtered", silent), newFake(t, "lost", reply{err: &upstream.Error{Outcome: upstream.ConnectFailed}})}
		rt := &Route{Name: "r", Mode: ParallelAll, MergeOpenRTB: true}
		for i, f := range fakes {
			rt.Targets = append(rt.Targets, Target{SSP: f.SSP, Secondary: i == 2})
		}
		rt.Targets[3].When = in(t, "app", "1")
		r := examined(t, NewTable([]*Route{rt}), `{"id":"r1","imp":[{"id":"i"}]}`)
		res := rt.Do(&r.Request, nil, newProcess(t))
		body := string(res.Exchange.Response.Body)
		for seat, status := range map[string]int{"late": 101, "secondary": 101, "filtered": 203, "lost": 103} {
			entry := fmt.Sprintf(`{"seat":%q,"nonbid":[{"impid":"i","statuscode":%d}]}`, seat, status)
			testsupport.True(t, strings.Contains(body, entry), "no %s in %s", entry, body)
		}
		res.Release()
	})
}

// Many impressions and SSPs multiply. What the budget does not hold is refused.
func TestMergedResponseStaysWithinTheBudget(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{newFake(t, "a", bidResponse("a", ""))}
		for i := range 20 {
			fakes = append(fakes, newFake(t, fmt.Sprint("b", i), reply{status: 204}))
		}
		r := newClient(t, upstream.POST, "", `{"id":"r1","imp":[`+strings.Repeat(`{"id":"i"},`, 5000)+`{}]}`)
		res := merging(fakes...).Do(&r.Request, nil, newProcess(t))
		want(t, "result", ended(&res), "overloaded")
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

func TestRequestsThatCannotBeMerged(t *testing.T) {
	for body, why := range map[string]string{
		`{"id":"1"}`: "", `{"id":1}`: "an id", `{}`: "an id", ``: "no JSON object", `{"id":"1","id":"1"}`: "twice", `{"id":"1"`: "not valid JSON",
	} {
		r := newClient(t, upstream.POST, "", body)
		got := CheckMerge(&r.Request)
		testsupport.True(t, (why == "") == (got == "") && strings.Contains(got, why), "%s: %q, want %q", body, got, why)
	}
	r := newClient(t, upstream.POST, "", `{"id":"1"}`, "Content-Encoding: gzip")
	testsupport.True(t, strings.Contains(CheckMerge(&r.Request), "compressed"), "a compressed body is merged")
}

// zipped compresses the body of a reply.
func zipped(t *testing.T, r reply) reply {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(r.body)); err != nil {
		t.Fatal(err)
	}
	testsupport.NoError(t, w.Close())
	r.fields, r.body = r.fields+"Content-Encoding: gzip\r\n", b.String()
	return r
}
