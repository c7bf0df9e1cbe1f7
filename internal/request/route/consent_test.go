package route

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
	"adbuffer/internal/wire/tcf"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
)

// granting grants consent to vendor 76.
const granting = "CQdjfYAQdjfYAAKABAENAwFgAMIAAAJAAAYgAmQAQAmACZABACYAAAAA"

func needsConsent(vendor int) []openrtb.Condition {
	return []openrtb.Condition{{TCF: &tcf.Requirement{Vendor: vendor, Purposes: []int{1}}}}
}

// decisionsOf returns the series of adbuffer_tcf_decisions_total, without those that are 0.
func decisionsOf(t *testing.T, ssps ...*ssp.SSP) string {
	t.Helper()
	text, err := testutil.CollectAndFormat(ssp.NewCollector(func() []*ssp.SSP { return ssps }), expfmt.TypeTextPlain, "adbuffer_tcf_decisions_total")
	testsupport.NoError(t, err)
	var all []string
	for line := range strings.Lines(string(text)) {
		series, ok := strings.CutPrefix(strings.TrimSpace(line), "adbuffer_tcf_decisions_total")
		if ok && !strings.HasSuffix(series, " 0") {
			all = append(all, series)
		}
	}
	return strings.Join(all, " ")
}

// The conditions of an SSP hold in every mode, beside those of its part in the route, and each decision is counted once.
func TestAnSSPWithoutConsentIsNotAsked(t *testing.T) {
	const body = `{"regs":{"gdpr":1},"user":{"consent":"` + granting + `"},"x":1}`
	both := `{decision="allowed",ssp="b"} 1 {decision="no_consent",ssp="a"} 1`
	for _, tt := range []struct {
		mode                  Mode
		body, asked, decision string
	}{
		{Single, body, "b", both}, {Split, body, "b", both}, {Waterfall, body, "b", both}, {ParallelFirst, body, "b", both}, {ParallelAll, body, "b", both},
		{Single, `{"x":1}`, "a", `{decision="not_applicable",ssp="a"} 1`},
		{ParallelAll, `{"x":1}`, "ab", `{decision="not_applicable",ssp="a"} 1 {decision="not_applicable",ssp="b"} 1`},
		{Split, strings.Replace(body, `"x":1`, `"x":2`, 1), "", both},
		{ParallelAll, strings.Replace(body, granting, granting[:30], 1), "", `{decision="unreadable",ssp="a"} 1 {decision="unreadable",ssp="b"} 1`},
		{ParallelAll, `{"x":1,"x":1}`, "", `{decision="unreadable",ssp="a"} 1 {decision="unreadable",ssp="b"} 1`},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			when := func(vendor int) func(*ssp.Options) {
				return func(o *ssp.Options) { o.When = needsConsent(vendor) }
			}
			a, b := newFake(t, "a", fills(ms, "a"), when(77)), newFake(t, "b", fills(ms, "b"), when(76))
			rt := &Route{Name: "r", Mode: tt.mode, Targets: []Target{{SSP: a.SSP, Weight: 1}, {SSP: b.SSP, Weight: 1, When: in(t, "x", "1")}}}
			table := NewTable([]*Route{rt})
			testsupport.True(t, rt.Filters(), "the body is not examined")
			rt.draw = func(int) int { return 0 }
			r := examined(t, table, tt.body)
			res := rt.Do(&r.Request, nil, newProcess(t))
			res.Release()
			time.Sleep(time.Second)
			asked := ""
			for _, f := range []*fakeSSP{a, b} {
				if len(f.requests()) == 1 {
					asked += f.Name()
				}
			}
			name := fmt.Sprint(tt.mode, " ", tt.body)
			want(t, name, asked, tt.asked)
			want(t, name, decisionsOf(t, a.SSP, b.SSP), tt.decision)
		})
	}
}

// A mirror gets no copy that its SSP may not process.
func TestAMirrorWithoutConsentGetsNoCopy(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		a := newFake(t, "a", fills(0, "ad"))
		b := newFake(t, "b", fills(0, "ad"), func(o *ssp.Options) { o.When = needsConsent(76) })
		rt := mirroring(a, b, 1, 1<<20)
		table := NewTable([]*Route{rt})
		for _, body := range []string{`{"regs":{"gdpr":1}}`, `{"regs":{"gdpr":1},"user":{"consent":"` + granting + `"}}`} {
			r := examined(t, table, body)
			res := rt.Do(&r.Request, nil, newProcess(t))
			res.Release()
		}
		time.Sleep(time.Second)
		a.wantRequests(2)
		b.wantRequests(1)
		s := rt.Mirror.Stats
		testsupport.True(t, s.outcomes[exchange.Filtered].Load() == 1 && s.outcomes[exchange.Fill].Load() == 1, "%d filtered, %d fills", s.outcomes[exchange.Filtered].Load(), s.outcomes[exchange.Fill].Load())
		want(t, "decisions", decisionsOf(t, b.SSP), `{decision="allowed",ssp="b"} 1 {decision="no_consent",ssp="b"} 1`)
	})
}

// A request without a body brings gdpr and gdpr_consent in its query. It is not unreadable, but conditions on members do
// not hold. A body decides alone.
func TestConsentOfRequestsWithoutABody(t *testing.T) {
	a := newFake(t, "a", silent)
	asking := func(conditions ...openrtb.Condition) []Target { return []Target{{SSP: a.SSP, When: conditions}} }
	table := NewTable([]*Route{
		{Match: Match{Path: "/", OpenRTB: needsConsent(76)}, Targets: asking()},
		{Match: Match{Path: "/"}, Targets: asking(append(in(t, "x", "1"), needsConsent(77)...)...)},
		{Match: Match{Path: "/members", OpenRTB: in(t, "x", "1")}, Targets: asking()},
		{Match: Match{Path: "/members"}, Targets: asking()},
		{Match: Match{Path: "/none", OpenRTB: needsConsent(76)}, Targets: asking()},
	})
	s := new(Search)
	for _, tt := range []struct {
		query, body string
		route       int
		unreadable  openrtb.Reason
	}{
		{"", "", 0, openrtb.Readable},
		{"gdpr=0", "", 0, openrtb.Readable},
		{"gdpr=1", "", 1, openrtb.Readable},
		{"gdpr=1&gdpr_consent=" + granting, "", 0, openrtb.Readable},
		{"gdpr_consent=" + granting + ".YAAA&a=b&gdpr=1", "", 0, openrtb.Readable},
		{"gdpr=1&gdpr_consent=", "", 1, openrtb.Readable},
		{"gdpr=1&gdpr_consent=x&gdpr_consent=" + granting, "", 1, openrtb.Readable},
		{"gdpr=1&gdpr_consent=" + granting + "&gdpr_consent=" + granting, "", 0, openrtb.Readable},
		{"gdpr=0&gdpr=1", "", 1, openrtb.Readable},
		{"gdpr=%31", "", 1, openrtb.Readable},
		{"%67dpr=1", "", 1, openrtb.Readable},
		{"%67dpr=%31&gdpr%5Fconsent=%43" + granting[1:], "", 0, openrtb.Readable},
		{"gdpr=1&gdpr_consent=" + granting + "&gdpr%5fconsent=x", "", 1, openrtb.Readable},
		{"gdpr=1&gdpr_consent=%4" + granting, "", 1, openrtb.Readable},
		{"gdpr=0", `{"regs":{"gdpr":1}}`, 1, openrtb.Readable},
		{"gdpr=1", `{}`, 0, openrtb.Readable},
		{"gdpr=0", `[]`, 1, openrtb.NotObject},
	} {
		f := lookup(t, "h", "/?"+tt.query)
		s.Reset()
		_, _ = table.Find(f, s)
		testsupport.True(t, s.NeedsBody && s.Unreadable(nil) == openrtb.Readable, "%s %s: the route needs no body", tt.query, tt.body)
		table.Examine(f, []byte(tt.body), s)
		rt, _ := table.Find(f, s)
		testsupport.True(t, rt == table.Routes[tt.route] && s.Unreadable(rt) == tt.unreadable, "%s %s: route %d, want %d; %v", tt.query, tt.body, rt.Index, tt.route, s.Unreadable(rt))
	} // For routes without such conditions, a request without a body is unreadable, as it is if no route is found.
	for path, want := range map[string]int{"/members": 3, "/none?gdpr=1": -1} {
		f := lookup(t, "h", path)
		s.Reset()
		table.Examine(f, nil, s)
		rt, _ := table.Find(f, s)
		testsupport.True(t, (rt == nil) == (want < 0) && (rt == nil || rt.Index == want) && s.Unreadable(rt) == openrtb.NotObject, "%s: route %v, want %d; %v", path, rt, want, s.Unreadable(rt))
	}
}
