package load

import (
	"fmt"
	"testing"
	"time"
)

const ms10 = 10 * time.Millisecond

func TestSummaryAddsThreadsAndRecordedPhasesUp(t *testing.T) {
	var threads []*recorder
	for range 2 {
		r := newRecorder(2, 2)
		for i := range 100 {
			r.Offered(0, 0)
			r.Response(0, 0, 200, 7, time.Hour) // of the warm-up
			r.Offered(1, i%2)
			if i < 98 {
				r.Response(1, i%2, 200, 10, ms10)
			} else {
				r.BadStatus(1, i%2, 503, []byte("proxy/deadline"), 300*time.Millisecond)
			}
		}
		threads = append(threads, r)
	}
	whole, each := summarize(threads, []stretch{{"warm-up", time.Second, false}, {"load", 2 * time.Second, true}}, []string{"a", "b"})
	if whole.Offered != 200 || whole.Answered != 196 || whole.Failed != 4 || whole.Rate != 98 || whole.Body != 1960 {
		t.Errorf("whole %+v", whole)
	}
	if whole.Errors["status 503 proxy/deadline"] != 4 || whole.Statuses[503] != 4 || whole.Statuses[200] != 196 {
		t.Errorf("errors %v, statuses %v", whole.Errors, whole.Statuses)
	}
	if whole.Latency.P50 < 9.9 || whole.Latency.P50 > 10.1 || whole.Latency.P99 < 299 || whole.Latency.P99 > 301 {
		t.Errorf("latency %+v", whole.Latency)
	}
	if len(whole.Classes) != 2 || whole.Classes[1].Offered != 100 || each[0].Answered != 200 || each[0].Latency.Max < 119000 {
		t.Errorf("classes %+v, warm-up %+v", whole.Classes, each[0])
	}
	if got := whole.FailedShare(); got != 0.02 {
		t.Errorf("failed share %v, want 0.02", got)
	}
}

func TestTimelineHasEachIntervalsOwnFigures(t *testing.T) {
	r := newRecorder(1, 1)
	r.Response(0, 0, 200, 0, ms10)
	r.Error(0, 0, "timeout", time.Second)
	first := r.Roll(time.Second)
	r.Response(0, 0, 200, 0, 2*ms10)
	second := r.Roll(2 * time.Second)
	if first.Answered != 1 || first.Errors != 1 || first.Max < 999 || second.Answered != 1 || second.Errors != 0 || second.Max > 21 {
		t.Errorf("%+v, %+v", first, second)
	}
	if got := mergeTimelines([]*recorder{r, r}); len(got) != 2 || got[0].Answered != 2 {
		t.Errorf("%+v", got)
	}
}

func TestKindsOfErrorsAreBoundedWhateverTheServerSends(t *testing.T) {
	r := newRecorder(1, 1)
	for i := range 10000 {
		r.BadStatus(0, 0, 500, fmt.Appendf(nil, "made-up/%d", i), 0)
	}
	whole, _ := summarize([]*recorder{r}, []stretch{{"load", time.Second, true}}, []string{"a"})
	if len(whole.Errors) > 201 || whole.Failed != 10000 || len(r.names) > 200 {
		t.Errorf("%d kinds and %d names for %d errors", len(whole.Errors), len(r.names), whole.Failed)
	}
}

func TestCurveEndsWhereThereIsLessThanARequest(t *testing.T) {
	r := newRecorder(1, 1)
	for range 50 {
		r.Response(0, 0, 200, 0, ms10)
	}
	whole, _ := summarize([]*recorder{r}, []stretch{{"load", time.Second, true}}, []string{"a"})
	if last := whole.Latency.Curve[len(whole.Latency.Curve)-1]; last.Percentile != 95 {
		t.Errorf("the curve of 50 requests ends at %v", last.Percentile)
	}
}
