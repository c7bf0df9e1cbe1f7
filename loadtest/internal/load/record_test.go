package load

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
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
	for range 2 {
		for i := range 100 {
			r.Sent(0, 0)
			r.succeeded(0, 0, 200, 7, time.Hour) // of the warm-up
			r.Sent(1, i%2)
			if i < 98 {
				r.succeeded(1, i%2, 200, 10, ms10)
			} else {
				r.badStatus(1, i%2, 503, []byte("proxy/deadline"), 300*time.Millisecond)
			}
		}
	}
	whole, each := r.summarize([]Phase{{Name: "warm-up", Duration: time.Second, Unrecorded: true},
		{Name: "load", Duration: 2 * time.Second}})
	if whole.Offered != 200 || whole.Answered != 196 || whole.Failed != 4 || whole.Rate != 98 || whole.Body != 1960 {
		t.Errorf("whole %+v", whole)
	}
	if whole.Errors["status 503 proxy/deadline"] != 4 || whole.Statuses[503] != 4 || whole.Statuses[200] != 196 {
		t.Errorf("errors %v, statuses %v", whole.Errors, whole.Statuses)
	}
	if whole.Latency.P50 < 9.9 || whole.Latency.P50 > 10.1 || whole.Latency.P99 < 299 || whole.Latency.P99 > 301 {
		t.Errorf("latency %+v", whole.Latency)
	}
	if len(whole.Classes) != 2 || whole.Classes[1].Offered != 100 || each[0].Answered != 200 ||
		each[0].Latency.Max < 119000 {
		t.Errorf("classes %+v, warm-up %+v", whole.Classes, each[0])
	}
	testsupport.Equal(t, whole.FailedShare(), 0.02, "failed share %v")
}

func TestTimelineHasEachIntervalsOwnFigures(t *testing.T) {
	r := books(1, "a")
	r.succeeded(0, 0, 200, 0, ms10)
	r.failed(0, 0, "timeout", time.Second)
	first := r.roll(time.Second)
	r.succeeded(0, 0, 200, 0, 2*ms10)
	second := r.roll(2 * time.Second)
	if first.Answered != 1 || first.Errors != 1 || first.Max < 999 || second.Answered != 1 || second.Errors != 0 ||
		second.Max > 21 {
		t.Errorf("%+v, %+v", first, second)
	}
	testsupport.True(t, len(r.timeline) == 2, "%+v", r.timeline)
}

func TestKindsOfErrorsAreBoundedWhateverTheServerSends(t *testing.T) {
	r := books(1, "a")
	for i := range 10000 {
		r.badStatus(0, 0, 500, fmt.Appendf(nil, "made-up/%d", i), 0)
	}
	whole, _ := r.summarize([]Phase{{Name: "load", Duration: time.Second}})
	testsupport.True(t, len(whole.Errors) <= 201 && whole.Failed == 10000, "%d kinds for %d errors", len(whole.Errors), whole.Failed)
}

func TestProgressCountsTheRequestsThatWait(t *testing.T) {
	var got []Progress
	r := books(1, "a")
	r.report = func(p Progress) { got = append(got, p) }
	for range 5 {
		r.Due()
	}
	for range 4 {
		r.Sent(0, 0)
	}
	r.Received(0, 0, 1, response{status: 200}, ms10, 900*time.Millisecond)
	r.Failed(0, 0, TimedOut, time.Second)
	r.Unsolicited(0)
	for _, now := range []time.Duration{999, 1000, 1001, 2100} {
		r.Tick(now * time.Millisecond)
	}
	if len(got) != 2 || got[0].Waiting != 3 || got[0].Answered != 1 || got[0].Errors != 2 || got[1].Errors != 0 ||
		r.last != 900*time.Millisecond {
		t.Errorf("%+v, the last response at %v", got, r.last)
	}
}
