package adminview

import (
	"fmt"
	"strings"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
)

// lastMinute is what requests of the last 60 to 70 s came to.
type lastMinute struct {
	Requests uint64 `json:"requests"` // without Filtered
	// Filtered are requests whose conditions on the body did not hold. Of a route, no SSP was left to ask.
	Filtered uint64 `json:"filtered,omitempty"`
	// Masked are errors of SSPs that a route replaced by its no_ad (on_error_status).
	Masked uint64 `json:"masked,omitempty"`
	// Seconds is the time that it covers.
	Seconds    float64 `json:"seconds"`
	Fills      uint64  `json:"fills"`
	Failed     uint64  `json:"failed"`      // by the SSP or by adbuffer; cancelled requests are none
	P50Seconds float64 `json:"p50_seconds"` // 0 without requests
	P99Seconds float64 `json:"p99_seconds"`

	byHand    uint64 // of Failed: an operator has taken the SSP out
	howFailed string // how most of the other failed requests ended, with their numbers
}

// The last minute is the time since the oldest of minuteMarks marks. A mark is made every markEvery
// looks, so that time is 60 to 70 s.
const (
	minuteMarks = 7
	markEvery   = 5
)

// minute keeps the counters of the last minute.
type minute struct {
	latency *metrics.Histogram // that marks describe; nil before the first look
	looks   int
	marks   []mark // oldest first
}

type mark struct {
	latency  metrics.Counts
	outcomes map[string]uint64
	masked   uint64
}

// describes reports whether the marks are of this histogram, or of none.
func (m *minute) describes(h *metrics.Histogram) bool { return m.latency == nil || m.latency == h }

// look is called every historyStep. outcomes and masked are since start.
func (m *minute) look(h *metrics.Histogram, outcomes map[string]uint64, masked uint64) {
	m.latency = h
	if m.looks%markEvery == 0 {
		m.marks = push(m.marks, minuteMarks, mark{h.Counts(), outcomes, masked})
	}
	m.looks++
}

// last returns what requests came to since the oldest mark. Before there are minuteMarks of them, it
// is since start. outcomes and masked are since start.
func (m *minute) last(h *metrics.Histogram, outcomes map[string]uint64, masked uint64) lastMinute {
	counts, before := h.Counts(), mark{}
	l := lastMinute{Seconds: float64(m.looks) * historyStep.Seconds()}
	if m.describes(h) && len(m.marks) == minuteMarks {
		before = m.marks[0]
		counts = counts.Sub(before.latency)
		l.Seconds = float64((minuteMarks-1)*markEvery+(m.looks-1)%markEvery) * historyStep.Seconds()
	}
	recent := since(before.outcomes, outcomes)
	l.P50Seconds, l.P99Seconds = h.QuantileOf(0.5, counts), h.QuantileOf(0.99, counts)
	l.Filtered, l.Masked = recent[filtered], masked-min(masked, before.masked)
	l.Requests, l.Fills, l.Failed, l.byHand = askedOf(recent), recent[exchange.Fill.String()], countFailed(recent), recent[exchange.SSPDisabled.String()]
	l.howFailed = howFailed(recent)
	return l
}

// since returns how many requests ended with each outcome since before. Both are since start.
func since(before, outcomes map[string]uint64) map[string]uint64 {
	recent := make(map[string]uint64, len(outcomes))
	for name, n := range outcomes {
		recent[name] = n - min(n, before[name])
	}
	return recent
}

// mostFailed names the outcome of most of the failed requests that pick accepts, "" if none failed. An
// operator's choice is no failure.
func mostFailed(outcomes map[string]uint64, pick func(exchange.Outcome) bool) string {
	most := ""
	for o := range exchange.Outcomes {
		if name := o.String(); o.IsFailure() && o != exchange.SSPDisabled && pick(o) && outcomes[name] > outcomes[most] {
			most = name
		}
	}
	return most
}

// howFailed names the SSP's own failure first: a breaker that sheds is an effect of it.
func howFailed(outcomes map[string]uint64) string {
	var all []string
	for _, pick := range []func(exchange.Outcome) bool{blamesSSP, func(o exchange.Outcome) bool { return !blamesSSP(o) }} {
		if name := mostFailed(outcomes, pick); name != "" {
			all = append(all, fmt.Sprintf("%d as %s", outcomes[name], name))
		}
	}
	return strings.Join(all, ", ")
}

func blamesSSP(o exchange.Outcome) bool { return o.Row().Blame == exchange.BlameSSP }

var filtered = exchange.Filtered.String()

// askedOf returns the number of requests that conditions on the body did not leave out.
func askedOf(outcomes map[string]uint64) (n uint64) {
	for name, c := range outcomes {
		if name != filtered {
			n += c
		}
	}
	return n
}

// failedOutcomes are the outcomes for which the SSP or adbuffer is to blame.
var failedOutcomes = func() (all []string) {
	for o := range exchange.Outcomes {
		if o.IsFailure() {
			all = append(all, o.String())
		}
	}
	return all
}()

func countFailed(outcomes map[string]uint64) (n uint64) {
	for _, name := range failedOutcomes {
		n += outcomes[name]
	}
	return n
}

// The trend of an SSP covers ten minutes: trendPoints points, one every trendEvery looks.
const (
	trendPoints = 30
	trendEvery  = 10
)

// trend is the small line of an SSP's row, in whole percent, oldest point first.
type trend struct {
	Saturation []int `json:"saturation"` // the highest of each point's time
	Failed     []int `json:"failed"`     // share of the requests that ended then

	looks    int
	most     float64
	outcomes map[string]uint64 // when the point began
}

// look is called every historyStep. outcomes are since start.
func (t *trend) look(saturation float64, outcomes map[string]uint64) {
	t.most = max(t.most, saturation)
	t.looks++
	if t.looks%trendEvery != 0 {
		return
	}
	n := askedOf(outcomes) - askedOf(t.outcomes)
	share := 0
	if n > 0 {
		share = int(100 * (countFailed(outcomes) - countFailed(t.outcomes)) / n)
	}
	t.Saturation = push(t.Saturation, trendPoints, int(100*min(t.most, 1)))
	t.Failed = push(t.Failed, trendPoints, share)
	t.most, t.outcomes = saturation, outcomes
}
