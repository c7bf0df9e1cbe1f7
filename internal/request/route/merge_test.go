package route

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
)

const bidRequest = `{"id":"r\u0031","imp":[{"id":"i1"},{"banner":{}},{"id":"i\"2"}],"cur":["EUR","USD"]}`

const aBid = `{"id":"b","impid":"i1","price":1.50}`

// bidResponse is a response to bidRequest with one seat, of any further members.
func bidResponse(seat, more string) reply {
	return reply{status: 200, fields: "Content-Type: text/plain\r\n", body: `{"id":"r1", "seatbid" : [ {"seat":"` + seat + `","bid":[{"id":"b","impid":"i1","price":1.50}]} ]` + more + `}`}
}

func merging(ssps ...*fakeSSP) *Route {
	rt := all(ssps)
	rt.MergeOpenRTB = true
	return rt
}

// Each response beside a good one: its statuscode in seatnonbid, or 0 for a response that is merged.
func TestResponsesAreMergedIntoOneBidResponse(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			reply  reply
			status int
		}{
			"a bid":                      {bidResponse("x", `,"cur":"EUR"`), 0},
			"seatBid":                    {reply{status: 200, body: `{"cur":"EUR","seatBid":[{"seat":"x","bid":[{"id":"b","impid":"i1","price":1.50}]}],"id":"\u0072\u0031"}`}, 0},
			"in gzip":                    {zipped(bidResponse("x", `,"cur":"EUR"`)), 0},
			"in zstd":                    {reply{status: 200, fields: "Content-Encoding: zstd\r\n", body: testsupport.Zstd(bidResponse("x", `,"cur":"EUR"`).body)}, 0},
			"zstd that is cut":           {reply{status: 200, fields: "Content-Encoding: zstd\r\n", body: testsupport.Zstd(bidResponse("x", `,"cur":"EUR"`).body)[:50]}, 102},
			"zstd of empty blocks":       {reply{status: 200, fields: "Content-Encoding: zstd\r\n", body: "\x28\xb5\x2f\xfd\x00\x58" + strings.Repeat("\x00\x00\x00", 4000)}, 102},
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
			"another request's response": {reply{status: 200, body: `{"id":"r2","seatbid":[{"bid":[` + aBid + `]}]}`}, 102},
			"no id":                      {reply{status: 200, body: `{"seatbid":[{"bid":[` + aBid + `]}]}`}, 102},
			"an id twice":                {reply{status: 200, body: `{"id":"r1","id":"r1","seatbid":[{"bid":[` + aBid + `]}]}`}, 102},
			"seatbid twice":              {reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[` + aBid + `]}],"seatbid":[]}`}, 102},
			"OpenRTB 3":                  {reply{status: 200, body: `{"openrtb":{"response":{"id":"r1","seatbid":[{"bid":[` + aBid + `]}]}}}`}, 102},
			"OpenRTB 3 beside a number":  {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":5,"openrtb":{"response":{"seatbid":[{"bid":[` + aBid + `]}]}}}`}, 102},
			"OpenRTB 3 beside no seats":  {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[],"openrtb":{"response":{"seatbid":[{"bid":[` + aBid + `]}]}}}`}, 102},
			"a seat that is no object":   {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[5]}`}, 102},
			"bids that are no array":     {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[{"bid":{}}]}`}, 102},
			"a bid that is no object":    {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[{"bid":["x"]}]}`}, 102},
			"Bid that is no object":      {reply{status: 200, body: `{"id":"r1","cur":"EUR","seatbid":[{"Bid":["x"]}]}`}, 102},
			"seatbid that is text":       {reply{status: 200, body: `{"id":"r1","seatbid":"x"}`}, 102},
			"seatbid that is a number":   {reply{status: 200, body: `{"id":"r1","seatbid":5,"nbr":2}`}, 102},
			"seatbid that is an object":  {reply{status: 200, body: `{"id":"r1","seatbid":{"bid":[` + aBid + `]}}`}, 102},
			"a seat without bids":        {reply{status: 200, body: `{"id":"r1","seatbid":[{}],"nbr":2}`}, 2},
			"seatbid that is null":       {reply{status: 200, body: `{"id":"r1","seatbid":null,"nbr":2}`}, 2},
			"null":                       {reply{status: 200, body: "null"}, 100},
			"a byte order mark":          {reply{status: 200, body: "\uFEFF"}, 100},
			"blanks":                     {reply{status: 200, body: " \r\n\t"}, 100},
			"a byte order mark and null": {reply{status: 200, body: "\uFEFF null\n"}, 100},
			"a byte order mark and bids": {reply{status: 200, body: "\uFEFF" + bidResponse("x", `,"cur":"EUR"`).body}, 0},
			"a bidid that is a number":   {bidResponse("x", `,"cur":"EUR","bidid":7`), 102},
			"a customdata that is none":  {bidResponse("x", `,"cur":"EUR","customdata":{}`), 102},
			"an nbr that is text":        {bidResponse("x", `,"cur":"EUR","nbr":"0"`), 102},
			"an nbr that is a fraction":  {bidResponse("x", `,"cur":"EUR","nbr":0.5`), 102},
			"gzip of empty blocks":       {reply{status: 200, fields: "Content-Encoding: gzip\r\n", body: "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + strings.Repeat("\x00\x00\x00\xff\xff", 4000)}, 102},
			"no JSON":                    {reply{status: 200, body: `<VAST/>`}, 102},
			"cut":                        {reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[` + aBid + `]}]`}, 102},
			"no UTF-8":                   {reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[` + aBid + `],"ext":{"x":"` + "\xff" + `"}}]}`}, 102},
			"a key twice in a bid":       {reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[` + aBid + `],"ext":{"x":1,"x":2}}]}`}, 102},
			"another coding":             {reply{status: 200, fields: "Content-Encoding: br\r\n", body: "x"}, 102},
			"gzip that is none":          {reply{status: 200, fields: "Content-Encoding: gzip\r\n", body: "x"}, 102},
			"302":                        {reply{status: 302, body: "x"}, 102},
			"404":                        {reply{status: 404, body: "x"}, 102},
			"503":                        {reply{status: 503, body: "x"}, 102},
		} {
			limit := func(o *ssp.Options) { o.MaxResponseBytes = 32 << 10 }
			a, b, c := newFake(t, "a", bidResponse("a", `,"cur":"EUR"`), limit), newFake(t, "b", tt.reply, limit), newFake(t, "c", bidResponse("c", `,"cur":"EUR"`), limit)
			r := newClient(t, exchange.POST, "", bidRequest)
			res := merging(a, b, c).Do(&r.Request, nil, newProcess(t))
			seat := func(of string) string { return `{"seat":"` + of + `","bid":[{"id":"b","impid":"i1","price":1.50}]}` }
			seats, nonBids := seat("a")+","+seat("x")+","+seat("c"), ""
			if tt.status != 0 {
				seats = seat("a") + "," + seat("c")
				nonBids = fmt.Sprintf(`{"seat":"b","nonbid":[{"impid":"i1","statuscode":%[1]d},{"impid":"i\"2","statuscode":%[1]d}]}`, tt.status)
			}
			want(t, name, ended(&res), `merged: 200 {"id":"r\u0031","seatbid":[`+seats+`],"cur":"EUR","ext":{"seatnonbid":[`+nonBids+`]}}`)
			testsupport.True(t, json.Valid(res.Exchange.Response.Body) && res.Filled, "%s: no valid JSON, or no fill", name)
			res.Release()
			wantEmpty(t, r.Budget)
		}
	})
}

func TestOneCurrencyIsMerged(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for _, tt := range []struct{ cur, a, b, want string }{
			{`,"cur":["EUR","USD"]`, `,"cur":"USD"`, `,"cur":"EUR"`, "b EUR"},
			{`,"cur":["EUR","USD"]`, `,"cur":null`, `,"cur":"GBP"`, "a USD"},
			{`,"cur":[]`, `,"cur":"GBP"`, ``, "b USD"},
			{``, `,"cur":"ZZZ"`, ``, "b USD"},
			{``, `,"cur":"ZZZ"`, `,"cur":"GBP"`, "none"},
			{`,"cur":["GBP"]`, `,"cur":"GBP"`, ``, "a GBP"},
			{``, ``, `,"cur":"\u0055SD"`, "ab USD"},
			{``, `,"cur":""`, ``, "ab USD"},
			{`,"cur":["","EUR"]`, ``, `,"cur":"EUR"`, "b EUR"},
			{`,"cur":["JPY"]`, ``, `,"cur":"GBP"`, "none"},
		} {
			a, b := newFake(t, "a", bidResponse("a", tt.a)), newFake(t, "b", bidResponse("b", tt.b))
			r := newClient(t, exchange.POST, "", `{"id":"r1","imp":[{"id":"i"}]`+tt.cur+`}`)
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
		}
	})
}

// Without a bid the response is the route's no-ad, for the most telling cause.
func TestMergeWithoutABidIsANoAd(t *testing.T) {
	late := reply{status: 204, after: 2 * deadline}
	nbr := func(n string) reply { return reply{status: 200, body: `{"id":"r1","nbr":` + n + `}`} }
	testsupport.Bubble(t, func(t *testing.T) {
		for _, tt := range []struct {
			a, b reply
			want exchange.Outcome
			nbr  int
		}{
			{reply{status: 503, body: "x"}, reply{status: 204}, exchange.NoBid, 1},
			{nbr("2"), reply{status: 503, body: "x"}, exchange.NoBid, 1},
			{nbr("2"), nbr("2"), exchange.NoBid, 2},
			{nbr("0"), nbr("0"), exchange.NoBid, 0},
			{nbr("600"), nbr("600"), exchange.NoBid, 600},
			{nbr("2"), nbr("3"), exchange.NoBid, 1},
			{nbr("2"), reply{status: 204}, exchange.NoBid, 1},
			{reply{status: 503, body: "x"}, late, exchange.ServerError, 1},
			{late, late, exchange.Deadline, 15},
			{bidResponse("a", `,"cur":"GBP"`), late, exchange.BadResponse, 1},
		} {
			r := newClient(t, exchange.POST, "", bidRequest)
			res := merging(newFake(t, "a", tt.a), newFake(t, "b", tt.b)).Do(&r.Request, nil, newProcess(t))
			testsupport.True(t, res.NoAd && !res.Filled && res.NoAdFor == tt.want && res.NBR == tt.nbr && res.Outcome == exchange.Merged && res.Err == nil, "no-ad %v for %v, nbr %d; want for %v, nbr %d", res.NoAd, res.NoAdFor, res.NBR, tt.want, tt.nbr)
			res.Release()
			wantEmpty(t, r.Budget)
		}
	})
}

// An SSP that was not asked is no cause beside one that was.
func TestMergeWithoutABidNamesNoFilteredSSP(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		rt := merging(newFake(t, "a", silent), newFake(t, "b", reply{status: 503, body: "x"}))
		rt.Targets[0].When = in(t, "app", "1")
		r := examined(t, NewTable([]*Route{rt}), `{"id":"r1"}`)
		res := rt.Do(&r.Request, nil, newProcess(t))
		testsupport.True(t, res.NoAd && res.NoAdFor == exchange.ServerError, "no-ad %v for %v", res.NoAd, res.NoAdFor)
		res.Release()
	})
}

// The response gives the reason of each SSP that is late, not waited for, not asked or unreachable.
func TestReasonsOfSSPsWithoutAResponse(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{newFake(t, "a", bidResponse("a", "")), newFake(t, "late", silent), newFake(t, "secondary", silent), newFake(t, "filtered", silent), newFake(t, "lost", reply{err: &exchange.Error{Outcome: exchange.ConnectFailed}})}
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

// Many impressions and SSPs multiply. What adbuffer adds is bounded by the request: 348,022 bytes and 64 KiB here.
func TestReasonsOfManyImpressionsAndSSPsAreTruncated(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		fakes := []*fakeSSP{newFake(t, "a", bidResponse("a", "")), newFake(t, "bad", reply{status: 200, body: `{"id":"r1","seatbid":[{"bid":[` + aBid + `,{"id":"c","impid":"i2","price":"1.0"}]}]}`})}
		for i := range 20 {
			fakes = append(fakes, newFake(t, fmt.Sprint("b", i), reply{status: 204}))
		}
		r := newClient(t, exchange.POST, "", `{"id":"r1","imp":[`+strings.Repeat(`{"id":"i0"},`, 29_000)+`{}]}`)
		r.Budget = exchange.NewBudget(64 << 20)
		res := merging(fakes...).Do(&r.Request, nil, newProcess(t))
		testsupport.MustTrue(t, res.Err == nil, "%v", res.Err)
		body := string(res.Exchange.Response.Body)
		testsupport.True(t, len(body) < 2000, "%d bytes for %d bytes of a request", len(body), len(r.Request.Body))
		for _, part := range []string{`"ext":{"seatnonbid":[{"seat":"bad","nonbid":[{"statuscode":102}]},{"seat":"b0","nonbid":[{"statuscode":100}]},`, `{"seat":"b19","nonbid":[{"statuscode":100}]}],"adbuffer":{"truncated":true}}}`} {
			testsupport.True(t, strings.Contains(body, part), "no %s in %s", part, body)
		}
		testsupport.True(t, json.Valid([]byte(body)), "no valid JSON")
		res.Release()
		wantEmpty(t, r.Budget)

		// Each of 100 impressions has its reasons, since these fit.
		r = newClient(t, exchange.POST, "", `{"id":"r1","imp":[`+strings.Repeat(`{"id":"i0"},`, 100)+`{}]}`)
		r.Budget = exchange.NewBudget(64 << 20)
		res = merging(fakes...).Do(&r.Request, nil, newProcess(t))
		body = string(res.Exchange.Response.Body)
		testsupport.Equal(t, strings.Count(body, `{"impid":"i0","statuscode":100}`), 2000, "%d reasons")
		testsupport.True(t, !strings.Contains(body, "truncated"), "truncated")
		res.Release()
		wantEmpty(t, r.Budget)

		// What the budget does not hold is refused.
		r.Budget = exchange.NewBudget(10_000)
		r.Request.Budget = r.Budget
		res = merging(fakes...).Do(&r.Request, nil, newProcess(t))
		want(t, "result", ended(&res), "overloaded")
		res.Release()
		wantEmpty(t, r.Budget)
	})
}

// A malformed bid, for which a typed parser would refuse the whole document, is left out. All other bids stay byte
// for byte.
func TestMalformedBidsAreLeftOut(t *testing.T) {
	bid := func(member string) string { return `{"id":"b","impid":"i\u0031","price":2,` + member + `}` }
	const good, unknown, known = aBid, `{"statuscode":102}`, `{"impid":"i\u0031","statuscode":102}`
	testsupport.Bubble(t, func(t *testing.T) {
		for _, tt := range []struct{ bids, seats, nonBid string }{
			{good + `,` + bid(`"price2":"1"`), "", ""}, // members that OpenRTB does not know have any type
			{good + `,` + bid(`"w":null,"adomain":null,"ext":null`), "", ""},
			{good + `,` + bid(`"adomain":["x"],"attr":[1,-2147483648],"cat":[],"ext":{"a":[]},"W":2147483647,"adm":"[1,"`), "", ""},
			{good + `, {"id":"b","impid":"i","price":"1.0"} `, good, `{"impid":"i","statuscode":102}`},
			{`{"id":"b","impid":"i","Price":true},` + good, good, `{"impid":"i","statuscode":102}`},
			{`{"id":"b","impid":"i","price":null},` + good, good, `{"impid":"i","statuscode":102}`},
			{`{"id":"b","impid":"i"} , ` + good, good, `{"impid":"i","statuscode":102}`},
			{`{"id":"b","price":1},` + good, good, unknown},
			{`{"impid":"i","price":1},` + good, good, `{"impid":"i","statuscode":102}`},
			{`{"id":7,"impid":"i","price":1},` + good, good, `{"impid":"i","statuscode":102}`},
			{`{"id":"b","impid":7,"price":1},` + good, good, unknown},
			{`{"id":"b","impid":["i"],"price":1},{},7,"x",null,[],` + good, good, unknown},
			{`{},` + good + `,{},{},` + good + `,{}`, good + `,` + good, unknown},
			{bid(`"w":"1"`) + `,` + good, good, known},
			{bid(`"w":1.0`) + `,` + good, good, known},
			{bid(`"h":2147483648`) + `,` + good, good, known},
			{bid(`"h":-2147483649`) + `,` + good, good, known},
			{bid(`"mtype":1e0`) + `,` + good, good, known},
			{bid(`"adomain":"a.example"`) + `,` + good, good, known},
			{bid(`"adomain":["a.example",7]`) + `,` + good, good, known},
			{bid(`"cat":{}`) + `,` + good, good, known},
			{bid(`"cat":[[]]`) + `,` + good, good, known},
			{bid(`"attr":1`) + `,` + good, good, known},
			{bid(`"attr":["1"]`) + `,` + good, good, known},
			{bid(`"adm":{}`) + `,` + good, good, known},
			{bid(`"crid":7`) + `,` + good, good, known},
			{bid(`"ext":[]`) + `,` + good, good, known},
		} {
			body := `{"id":"r1","seatbid":[{"bid":[` + tt.bids + `],"seat":"x"},{"seat":"y","bid":[` + good + `]}]}`
			a, b := newFake(t, "a", bidResponse("a", "")), newFake(t, "b", reply{status: 200, body: body})
			r := newClient(t, exchange.POST, "", `{"id":"r1","imp":[{"id":"i"}]}`)
			res := merging(a, b).Do(&r.Request, nil, newProcess(t))
			seats, nonBids := tt.seats, ""
			if seats == "" {
				seats = tt.bids
			}
			if tt.nonBid != "" {
				nonBids = `{"seat":"b","nonbid":[` + tt.nonBid + `]}`
			}
			got := strings.NewReplacer("[ ", "[", " ]", "]", " ,", ",", ", ", ",").Replace(ended(&res))
			want(t, tt.bids, got, `merged: 200 {"id":"r1","seatbid":[{"seat":"a","bid":[`+aBid+`]},{"bid":[`+seats+`],"seat":"x"},{"seat":"y","bid":[`+good+`]}],"cur":"USD","ext":{"seatnonbid":[`+nonBids+`]}}`)
			res.Release()
			wantEmpty(t, r.Budget)
		}
	})
}

// A malformed seat is left out, as is a seat that loses all its bids. An SSP that has no other seat is 102.
func TestMalformedSeatsAreLeftOut(t *testing.T) {
	seat := func(member string) string { return `{` + member + `"bid":[` + aBid + `]}` }
	testsupport.Bubble(t, func(t *testing.T) {
		for _, tt := range []struct{ seats, stay string }{
			{seat(`"seat":7,`) + `,` + seat(""), seat("")},
			{seat("") + `,` + seat(`"group":"1",`), seat("")},
			{seat("") + `,` + seat(`"ext":7,`) + `,` + seat(""), seat("") + `,` + seat("")},
			{`7,` + seat(""), seat("")},
			{`{},` + seat(""), `{},` + seat("")},
			{`{"bid":{}},` + seat(""), seat("")},
			{`{"bid":[{}]},` + seat(""), seat("")},
			{`{"bid":[{},{}]},{"bid":[{},` + aBid + `]},{"bid":[{}]}`, seat("")},
			{`{"bid":[]},` + seat(""), `{"bid":[]},` + seat("")},
			{`{"bid":[{}]},{"bid":[{}]}`, ""},
			{seat(`"seat":7,`), ""},
			{strings.Repeat(`7,`, 256) + seat(""), seat("")},
			{strings.Repeat(`7,`, 257) + seat(""), ""},
			{`{"bid":[` + strings.Repeat(`{},`, 100_000) + aBid + `]},` + seat(""), ""},
		} {
			b := newFake(t, "b", reply{status: 200, body: `{"id":"r1","seatbid":[` + tt.seats + `]}`})
			r := newClient(t, exchange.POST, "", `{"id":"r1","imp":[{"id":"i"}]}`)
			res := merging(newFake(t, "a", bidResponse("a", "")), b).Do(&r.Request, nil, newProcess(t))
			seats, nonBid := "", `{"impid":"i","statuscode":102}`
			if tt.stay != "" {
				seats, nonBid = `,`+tt.stay, `{"statuscode":102}`
			}
			nonBids := `{"seat":"b","nonbid":[` + nonBid + `]}`
			if tt.stay == tt.seats {
				nonBids = ""
			}
			want(t, fmt.Sprintf("%.60s", tt.seats), ended(&res), `merged: 200 {"id":"r1","seatbid":[{"seat":"a","bid":[`+aBid+`]}`+seats+`],"cur":"USD","ext":{"seatnonbid":[`+nonBids+`]}}`)
			res.Release()
			wantEmpty(t, r.Budget)
		}
	})
}

// Ids that are not text, or not Unicode, are not repeated, since a parser would refuse the whole result.
func TestIDsThatAreNoTextAreNotRepeated(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		r := newClient(t, exchange.POST, "", `{"id":"r1","imp":[{"id":"i"},{"id":7},{"id":"\ud800"},{"id":"`+"\xff"+`"},{"id":"j"}]}`)
		res := merging(newFake(t, "a", bidResponse("a", "")), newFake(t, "b", reply{status: 204})).Do(&r.Request, nil, newProcess(t))
		testsupport.True(t, strings.Contains(ended(&res), `"nonbid":[{"impid":"i","statuscode":100},{"impid":"j","statuscode":100}]`), "%s", ended(&res))
		res.Release()
	})
}

func TestRequestsThatCannotBeMerged(t *testing.T) {
	for body, why := range map[string]string{
		`{"id":"1"}`: "", `{"id":1}`: "an id", `{"id":"\ud800"}`: "an id", "{\"id\":\"\xff\"}": "an id", `{}`: "an id", ``: "not a JSON object", `{"id":"1","id":"1"}`: "twice", `{"id":"1"`: "not valid JSON",
	} {
		r := newClient(t, exchange.POST, "", body)
		got := CheckMerge(&r.Request)
		testsupport.True(t, (why == "") == (got == "") && strings.Contains(got, why), "%s: %q, want %q", body, got, why)
	}
	r := newClient(t, exchange.POST, "", `{"id":"1"}`, "Content-Encoding: gzip")
	testsupport.True(t, strings.Contains(CheckMerge(&r.Request), "compressed"), "a compressed body is merged")
}

// A response that adbuffer has no CPU or memory to decode is left out as adbuffer's own refusal, and not as the SSP's error.
func TestAResponseThatGetsNoTurnIsNoFailureOfItsSSP(t *testing.T) {
	tables := reply{status: 200, fields: "Content-Encoding: gzip\r\n", body: string(testsupport.GzipOfTables(8192))}
	limit := func(o *ssp.Options) { o.MaxResponseBytes = 32 << 10 }
	for _, c := range []struct {
		free   bool  // a turn
		budget int64 // bytes that the response, but not the decoded response, fits into
		status string
		alone  exchange.Outcome
		detail string // of the error of b
	}{
		{true, 1 << 20, "102", exchange.BadResponse, ""},
		{false, 1 << 20, "203", exchange.Overloaded, "adbuffer has too little CPU: a compressed body waited for its turn to be decoded; see server.background_cpu"},
		{true, 12_000, "203", exchange.Overloaded, "the decoded body does not fit into the budget; see server.max_buffered_bytes"},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			share := cpushare.New(0.25, time.Hour)
			for range max(1, runtime.GOMAXPROCS(0)/2) {
				turn, err := share.Acquire(cpushare.Decode, 1, time.Now())
				testsupport.NoError(t, err)
				if c.free {
					turn.Release()
				}
			}
			a, b := newFake(t, "a", bidResponse("a", "")), newFake(t, "b", tables, limit)
			r := newClient(t, exchange.POST, "", `{"id":"r1","imp":[{"id":"i"}]}`)
			r.CPU = share
			r.Budget.SetLimit(c.budget)
			res := merging(a, b).Do(&r.Request, nil, newProcess(t))
			testsupport.True(t, strings.Contains(ended(&res), `"seatnonbid":[{"seat":"b","nonbid":[{"impid":"i","statuscode":`+c.status+`}]}]`), "%s, want %s", ended(&res), c.status)
			res.Release()
			wantEmpty(t, r.Budget)

			res = merging(b).Do(&r.Request, nil, newProcess(t))
			testsupport.True(t, res.NoAd && res.NoAdFor == c.alone, "alone: no ad for %v, want %v", res.NoAdFor, c.alone)
			err := res.legs.all[0].Err
			testsupport.True(t, (err == nil) == (c.detail == "") && (err == nil || err.Text() == c.detail), "alone: %v, want %q", err, c.detail)
			res.Release()
		})
	}
}

// zipped compresses the body of a reply.
func zipped(r reply) reply {
	r.fields, r.body = r.fields+"Content-Encoding: gzip\r\n", testsupport.Gzip(r.body)
	return r
}
