package load

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

const ms10 = 10 * time.Millisecond

// books returns the recorder of a plan with these phases and classes of requests.
func books(phases int, classes ...string) *recorder {
	p := &Plan{Phases: make([]Phase, phases), Tick: time.Second}
	for _, c := range classes {
		p.Templates = append(p.Templates, Template{Name: c})
	}
	return newRecorder(p, nil)
}

func TestSummaryAddsClassesAndRecordedPhasesUp(t *testing.T) {
	r := books(2, "a", "b")
	good, refused := response{status: 200, body: make([]byte, 10)}, response{status: 503, source: []byte("proxy/deadline")}
	for i := range 200 {
		r.received(r.begin(arrival{}), good, time.Hour) // of the warm-up
		f := r.begin(arrival{phase: 1})
		if i%100 < 98 {
			r.received(f, good, ms10)
		} else {
			r.received(f, refused, 300*time.Millisecond)
		}
	}
	whole, each := r.summarize([]Phase{{Name: "warm-up", Duration: time.Second, Unrecorded: true},
		{Name: "load", Duration: 2 * time.Second}})
	if whole.Offered != 200 || whole.Answered != 196 || whole.Failed != 4 || whole.Rate != 98 {
		t.Errorf("whole %+v", whole)
	}
	if whole.Errors["status 503 proxy/deadline"] != 4 || whole.Statuses[503] != 4 || whole.Statuses[200] != 196 {
		t.Errorf("errors %v, statuses %v", whole.Errors, whole.Statuses)
	}
	if whole.Latency.P50 < 9.9 || whole.Latency.P50 > 10.1 || whole.Latency.P99 < 299 || whole.Latency.P99 > 301 {
		t.Errorf("latency %+v", whole.Latency)
	}
	if len(whole.Classes) != 2 || whole.Classes[0].Offered+whole.Classes[1].Offered != 200 || whole.Classes[1].Offered == 0 ||
		each[0].Answered != 200 || each[0].Latency.Max < 119000 {
		t.Errorf("classes %+v, warm-up %+v", whole.Classes, each[0])
	}
	testsupport.Equal(t, whole.FailedShare(), 0.02, "failed share %v")
}

// The most frequent of 12 segments has 1/H of the requests, with H = 1 + 1/2 + … + 1/12 = 3.103.
func TestSegmentsFollowZipfsLaw(t *testing.T) {
	p := &Plan{Addr: "h:1", Phases: make([]Phase, 1), Tick: time.Second, Templates: []Template{{Method: "POST", Path: "/?cb={n}&a={1}&b={2}",
		Literal: "-", Segments: []int{3, 4}}}}
	r := newRecorder(p, nil)
	seen := map[string]int{}
	rates := 0.0
	for n := range uint64(20_000) {
		f := r.begin(arrival{})
		rates += f.rate
		seen[string(f.append(nil, 0))]++
		r.received(f, response{status: 204, source: []byte(map[bool]string{true: "proxy/shaped", false: "ssp/a"}[n%2 == 0])}, 0)
	}
	testsupport.Equal(t, len(seen), 12, "%d segments, want 12")
	most, all, shares := 0, p.Segments(), 0.0
	for _, n := range seen {
		most = max(most, n)
	}
	testsupport.Between(t, most, 6100, 6800, "%d of 20 000 requests have the most frequent segment")
	testsupport.True(t, seen["POST /?cb=0000000000&a=2&b=3 HTTP/1.1\r\nHost: h:1\r\nContent-Length: 1\r\n\r\n-"] > 0, "the requests are %v", seen)
	for _, s := range all {
		shares += s.Share
	}
	testsupport.Between(t, shares, 0.999999, 1.000001, "the shares add up to %v")
	testsupport.Between(t, all[0].Share, 0.3222, 0.3223, "the first share is %v")
	whole, _ := r.summarize(p.Phases)
	testsupport.Between(t, whole.Fills/rates, 0.999, 1.001, "the fills differ by the factor %v")
	testsupport.Between(t, whole.Shaped/rates, 0.4, 0.6, "half of the requests are dropped, and %v of the fills")
}

func TestProgressHasEachIntervalsOwnFigures(t *testing.T) {
	var got []Progress
	r := books(1, "a")
	r.report = func(p Progress) { got = append(got, p) }
	r.received(r.begin(arrival{}), response{status: 200}, ms10)
	r.failed(r.begin(arrival{}), TimedOut, time.Second)
	r.unsolicited(0)
	r.endInterval(time.Second)
	r.received(r.begin(arrival{}), response{status: 200}, 2*ms10)
	r.endInterval(2 * time.Second)
	if len(got) != 2 || got[0].Answered != 1 || got[0].Errors != 2 || got[0].P99 < 999 ||
		got[1].Answered != 1 || got[1].Errors != 0 || got[1].P99 > 21 || r.last != 2*ms10 {
		t.Errorf("%+v, the last response at %v", got, r.last)
	}
}

func TestKindsOfErrorsAreBoundedWhateverTheServerSends(t *testing.T) {
	r := books(1, "a")
	for i := range 10000 {
		r.received(r.begin(arrival{}), response{status: 500, source: fmt.Appendf(nil, "made-up/%d", i)}, 0)
	}
	whole, _ := r.summarize([]Phase{{Name: "load", Duration: time.Second}})
	testsupport.True(t, len(whole.Errors) <= 201 && whole.Failed == 10000, "%d kinds for %d errors", len(whole.Errors), whole.Failed)
}
