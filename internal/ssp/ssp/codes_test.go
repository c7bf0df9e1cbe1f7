package ssp

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestResponsesAreCountedByTheirStatus(t *testing.T) {
	s := newSSP(options(nil), &fakePool{})
	r := &Request{Method: exchange.GET}
	for _, status := range []int{200, 200, 204, 503, 599, 302} {
		s.classify(r, &exchange.Response{Status: status, Body: []byte("x")})
	}
	wantMetrics(t, registry(t, s), `
# HELP adbuffer_ssp_responses_total Responses of an SSP by their exact status. If an SSP sends more than 40 different statuses, the rest count as other.
# TYPE adbuffer_ssp_responses_total counter
adbuffer_ssp_responses_total{code="200",ssp="openx"} 2
adbuffer_ssp_responses_total{code="204",ssp="openx"} 1
adbuffer_ssp_responses_total{code="302",ssp="openx"} 1
adbuffer_ssp_responses_total{code="429",ssp="openx"} 0
adbuffer_ssp_responses_total{code="500",ssp="openx"} 0
adbuffer_ssp_responses_total{code="503",ssp="openx"} 1
adbuffer_ssp_responses_total{code="599",ssp="openx"} 1
adbuffer_ssp_responses_total{code="other",ssp="openx"} 0
`, "adbuffer_ssp_responses_total")
}

// If an SSP sends many statuses, the first statuses get series, and keep them.
func TestAnSSPWithManyStatusesHasFewSeries(t *testing.T) {
	var c codes
	c.init()
	for round := range uint64(3) {
		series := 0
		for status := minCode - 1; status <= maxCode+1; status++ {
			c.add(status)
		}
		c.each(func(code string, n uint64) {
			want := round + 1
			if series++; code == "other" {
				want *= 402 - maxCodes
			}
			testsupport.True(t, n == want, "round %d: %d responses of %s, want %d", round, n, code, want)
		})
		testsupport.Equal(t, series, maxCodes+1, "round %[2]d: %[1]d series", round)
	}
}

func TestNoBidsAreCountedByTheReasonThatTheSSPGives(t *testing.T) {
	for _, c := range []struct{ body, coding, want string }{
		{"", "", "none"},
		{`{"id":"1","nbr":0}`, "", "0"},
		{`{"id":"1", "nbr" : 17 }`, "", "17"},
		{`{"nbr":18}`, "", "other"},
		{`{"nbr":499}`, "", "other"},
		{`{"nbr":500}`, "", "vendor"},
		{`{"nbr":99999999999999999999}`, "", "vendor"},
		{`{"nbr":-1}`, "", "none"},
		{`{"nbr":"2"}`, "", "none"},
		{`{"nbr":2.5}`, "", "other"},
		{`{"ext":{"nbr":null},"nbr":8}`, "", "8"},
		{`{"id":"\"nbr\":3"}`, "", "none"},
		{`{"seatbid":[]}`, "", "none"},
		{`{"nbr":2}`, "gzip", "2"},
	} {
		s := newSSP(options(func(o *Options) { o.NoBidBody = NoBidOpenRTB }), &fakePool{})
		a := &exchange.Response{Status: 200, Body: []byte(c.body)}
		if c.coding != "" {
			a.Body = gzipped(c.body)
			a.Fields = []byte("Content-Encoding: " + c.coding + "\r\n")
		}
		testsupport.Equal(t, s.classify(&Request{Method: exchange.GET}, a), exchange.NoBid, "%[2]q counts as %[1]v", c.body)
		for i, name := range noBidReasonNames {
			want := uint64(0)
			if name == c.want {
				want = 1
			}
			got := s.stats.noBids[i].Load()
			testsupport.True(t, got == want, "%q: %d with the reason %s, want %s", c.body, got, name, c.want)
		}
	}
}

func TestReasonsHaveSeriesOnlyWhereTheyAreRead(t *testing.T) {
	for by, want := range map[NoBidBody]int{"": 0, NoBidVAST: 0, NoBidOpenRTB: noBidReasons} {
		s := newSSP(options(func(o *Options) { o.NoBidBody = by }), &fakePool{})
		n, err := testutil.GatherAndCount(registry(t, s), "adbuffer_no_bid_reasons_total")
		testsupport.True(t, err == nil && n == want, "%v: %d series, %v; want %d", by, n, err, want)
	}
	testsupport.True(t, fmt.Sprint(noBidReasonNames) == "[0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 vendor other none]", "%v", noBidReasonNames)
}
