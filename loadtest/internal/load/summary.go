package load

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Summary holds the figures of one phase, of one class, or of the whole run.
type Summary struct {
	Name     string
	Seconds  float64
	Offered  uint64 // requests due in an open loop or sent by a closed loop
	Answered uint64
	Failed   uint64
	Errors   map[string]uint64 // by kind
	Statuses map[int]uint64
	Rate     float64 // responses a second
	Latency  Latency
	// Fills is the sum of sspsim.FillRate over the offered requests, and Shaped the sum over those that adbuffer
	// dropped by qps.shape. Both are 0 without segments.
	Fills   float64
	Shaped  float64
	Classes []Summary // empty if there is one class
}

// Latency holds percentiles in milliseconds. A failed request counts with the time until it failed.
type Latency struct{ P50, P95, P99, P999, Max float64 }

// FailedShare returns the share of requests that failed.
func (s Summary) FailedShare() float64 {
	if n := s.Answered + s.Failed; n > 0 {
		return float64(s.Failed) / float64(n)
	}
	return 0
}

// Kinds lists the kinds of errors, each with the number of requests.
func (s Summary) Kinds() string {
	if s.Failed == 0 {
		return "none"
	}
	var kinds []string
	for kind, n := range s.Errors {
		kinds = append(kinds, fmt.Sprintf("%s: %d", strings.TrimPrefix(strings.Replace(kind, "proxy/", "", 1),
			"status "), n))
	}
	slices.Sort(kinds)
	return cmp.Or(strings.Join(kinds, ", "), "of unknown kind") // load tools name no kinds
}

// Failures says how many requests failed, and for which reasons.
func (s Summary) Failures() string {
	if s.Failed == 0 {
		return "none failed"
	}
	return fmt.Sprintf("%d of %d failed (%s)", s.Failed, s.Answered+s.Failed, s.Kinds())
}

// summarize returns a summary of the recorded phases and one of each phase. An early end of the run
// has shortened the phases.
func (r *recorder) summarize(phases []Phase) (whole Summary, each []Summary) {
	var recorded []int
	seconds := 0.0
	for i, phase := range phases {
		each = append(each, r.summary(phase.Name, phase.Duration.Seconds(), i))
		if !phase.Unrecorded {
			recorded = append(recorded, i)
			seconds += phase.Duration.Seconds()
		}
	}
	return r.summary("all", seconds, recorded...), each
}

// summary adds up the cells of some phases, also for each class if there are several classes.
func (r *recorder) summary(name string, seconds float64, phases ...int) Summary {
	var all []*cell
	var classes []Summary
	for class, t := range r.plan.Templates {
		var own []*cell
		for _, phase := range phases {
			own = append(own, r.cell(phase, class))
		}
		classes = append(classes, sum(t.Name, seconds, own))
		all = append(all, own...)
	}
	s := sum(name, seconds, all)
	if len(classes) > 1 {
		s.Classes = classes
	}
	return s
}

func sum(name string, seconds float64, cells []*cell) Summary {
	s := Summary{Name: name, Seconds: seconds, Errors: map[string]uint64{}, Statuses: map[int]uint64{}}
	latencies := NewHistogram()
	for _, c := range cells {
		s.Offered += c.Offered
		s.Answered += c.Answered
		s.Failed += c.Failed
		s.Fills += c.Fills
		s.Shaped += c.Shaped
		for kind, n := range c.Errors {
			s.Errors[kind] += n
		}
		for status, n := range c.Statuses {
			s.Statuses[status] += n
		}
		latencies.Merge(c.latency)
	}
	s.Latency = LatencyOf(latencies)
	if seconds > 0 {
		s.Rate = round(float64(s.Answered)/seconds, 2)
	}
	return s
}

// LatencyOf returns the percentiles of a histogram.
func LatencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	return Latency{P50: ms(h.ValueAtQuantile(50)), P95: ms(h.ValueAtQuantile(95)), P99: ms(h.ValueAtQuantile(99)),
		P999: ms(h.ValueAtQuantile(99.9)), Max: ms(h.Max())}
}
