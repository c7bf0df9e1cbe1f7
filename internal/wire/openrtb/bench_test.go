package openrtb

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// bidRequest returns a bid request of n bytes: more impressions make it longer.
func bidRequest(tb testing.TB, n int) []byte {
	tb.Helper()
	body, err := os.ReadFile("../../test/e2e/forwarding/testdata/bid-request.json")
	testsupport.NoError(tb, err)
	const imp = `"imp":[`
	more := `{"id":"%d","banner":{"w":300,"h":250,"format":[{"w":300,"h":250}],"pos":1,"api":[5,7]},"tagid":"/1234/news/mpu","bidfloor":0.45,"secure":1},`
	head, tail, _ := strings.Cut(string(body), imp)
	var b strings.Builder
	b.WriteString(head + imp)
	for i := 2; b.Len()+len(more)+len(tail) < n; i++ {
		fmt.Fprintf(&b, more, i)
	}
	rest := n - b.Len() - len(tail) - len(`{"id":"x","tagid":""},`)
	b.WriteString(`{"id":"x","tagid":"` + strings.Repeat("x", max(0, rest)) + `"},` + tail)
	return []byte(b.String())
}

// benchConditions are 20 conditions over 10 routes.
func benchConditions(p *Paths) (routes [10][]Test) {
	for i := range routes {
		routes[i] = []Test{
			p.Condition(&Condition{Path: MustParsePath("device.geo.country"), Values: []Value{{text: "AUT"}, {text: fmt.Sprintf("C%02d", i)}}}),
			p.Condition([]*Condition{
				{Path: MustParsePath("imp.*.video")},
				{Path: MustParsePath("regs.coppa"), Not: true, Values: []Value{{other: true, text: "1e0"}}},
				{Path: MustParsePath("imp.*.banner.w"), Values: []Value{{other: true, text: "728e0"}}},
				{Path: MustParsePath("site.publisher.id"), Values: []Value{{text: "p-9"}}},
				{Path: MustParsePath("user.consent")},
				{Path: MustParsePath("app"), Not: true},
				{Path: MustParsePath("source.schain.complete"), Values: []Value{{other: true, text: "1e0"}}},
				{Path: MustParsePath("device.devicetype"), Values: []Value{{other: true, text: "3e0"}, {other: true, text: "7e0"}}},
				{Path: MustParsePath("imp.*.pmp.deals.*.id"), Values: []Value{{text: "deal-9"}}},
				{Path: MustParsePath("bcat")},
			}[i]),
		}
	}
	return routes
}

func BenchmarkConditions(b *testing.B) {
	for _, n := range []int{2 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			body := bidRequest(b, n)
			if len(body) != n {
				b.Fatalf("the body has %d bytes", len(body))
			}
			var (
				p       Paths
				f       Facts
				matched int
			)
			routes := benchConditions(&p)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				p.Scan(body, &f)
				for _, tests := range routes {
					if f.HoldAll(tests) {
						matched++
					}
				}
			}
			if f.Reason != Readable || matched > 0 {
				b.Fatalf("%v, %d matched", f.Reason, matched)
			}
		})
	}
}
