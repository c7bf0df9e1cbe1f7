package adminview

import (
	"maps"
	"strings"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/operate/advice"
	"adbuffer/internal/wire/exchange"
)

// lastMinute holds the results of the requests of the last 60 to 70 s, to one SSP or on one route.
type lastMinute struct {
	Requests uint64 `json:"requests"` // without Filtered and Shaped
	// Filtered counts the requests for which an SSP was not asked because of its conditions on the body;
	// for a route, the requests for which no SSP remained.
	Filtered uint64 `json:"filtered,omitempty"`
	// Shaped counts the requests that qps.shape dropped; for a route, those that no SSP got because of that.
	Shaped uint64 `json:"shaped,omitempty"`
	// Masked counts the errors of SSPs that the route replaced by its no_ad (on_error_status).
	Masked uint64 `json:"masked,omitempty"`
	// Preflights counts OPTIONS requests that routes[].cors responded to; they are not in Requests.
	Preflights uint64 `json:"preflights,omitempty"`
	// Seconds is the length of the covered time.
	Seconds    float64 `json:"seconds"`
	Fills      uint64  `json:"fills"`
	Rejected   uint64  `json:"rejected,omitempty"` // responses of SSPs with a status of 4xx
	Failed     uint64  `json:"failed"`             // failures of the SSP or of adbuffer, without cancelled requests
	P50Seconds float64 `json:"p50_seconds"`        // 0 without requests
	P99Seconds float64 `json:"p99_seconds"`

	byHand    uint64 // how many of Failed were refused because an operator disabled the SSP
	noRoute   uint64 // how many of Requests matched no route
	noPlace   uint64 // how many of Failed found no place in the pool
	bySSP     uint64 // how many of Failed the SSP is to blame for
	howFailed string // the commonest outcomes of the failed requests without byHand, with their numbers
	over      bool   // the failures have ended: the last seconds had none, although some were to be expected
}

// The last minute is the time since the oldest of the last minuteMarks marks. A mark is made every
// markEvery looks, so the oldest mark is 60 to 70 s old.
const (
	minuteMarks = 7
	markEvery   = 5
)

// minute keeps the counters of the last minute.
type minute struct {
	latency *metrics.Histogram // the histogram that the marks were read from; nil before the first look
	looks   int
	marks   []mark // oldest first
}

type mark struct {
	latency metrics.Counts
	counts
}

// counts holds numbers of requests to an SSP or on a route, since start. masked, merged and preflights are those of
// proxy.RouteCounts, and 0 for an SSP.
type counts struct {
	outcomes                   map[string]uint64
	masked, merged, preflights uint64
}

// describes reports whether the marks were read from h, or there are no marks yet.
func (m *minute) describes(h *metrics.Histogram) bool { return m.latency == nil || m.latency == h }

// look makes a mark if one is due. It is called every historyStep.
func (m *minute) look(h *metrics.Histogram, now counts) {
	m.latency = h
	if m.looks%markEvery == 0 {
		m.marks = push(m.marks, minuteMarks, mark{h.Counts(), now})
	}
	m.looks++
}

// before returns the oldest mark, or the zero mark and false while there are fewer than minuteMarks marks.
func (m *minute) before(h *metrics.Histogram) (oldest mark, full bool) {
	if full = m.describes(h) && len(m.marks) == minuteMarks; full {
		oldest = m.marks[0]
	}
	return oldest, full
}

// last returns the results of the requests since the oldest mark, or since start while there are fewer
// than minuteMarks marks.
func (m *minute) last(h *metrics.Histogram, now counts) lastMinute {
	latency, l := h.Counts(), lastMinute{Seconds: float64(m.looks) * historyStep.Seconds()}
	before, full := m.before(h)
	if full {
		latency = latency.Sub(before.latency)
		l.Seconds = float64((minuteMarks-1)*markEvery+(m.looks-1)%markEvery) * historyStep.Seconds()
	}
	recent := since(before.outcomes, now.outcomes)
	l.P50Seconds, l.P99Seconds = h.QuantileOf(0.5, latency), h.QuantileOf(0.99, latency)
	l.Filtered, l.Shaped, l.Masked = recent[exchange.Filtered.String()], recent[exchange.Shaped.String()], now.masked-min(now.masked, before.masked)
	l.Preflights = now.preflights - min(now.preflights, before.preflights)
	l.Requests, l.Failed, l.byHand = askedOf(recent), countFailed(recent), recent[exchange.SSPDisabled.String()]
	l.Fills = recent[exchange.Fill.String()] + now.merged - min(now.merged, before.merged)
	l.Rejected, l.noRoute = recent[exchange.ClientError.String()], recent[exchange.NoRoute.String()]
	l.noPlace, l.bySSP, l.howFailed = recent[exchange.PendingFull.String()]+recent[exchange.PendingTimeout.String()], count(recent, blamesSSP), howFailed(recent)
	if n := len(m.marks) - 2; n >= 0 && l.Requests > 0 {
		lately := since(m.marks[n].outcomes, now.outcomes) // in the last 10 to 20 s
		l.over = blamed(lately) == 0 && blamed(recent)*askedOf(lately) >= expectedFailures*l.Requests
	}
	return l
}

// expectedFailures is the evidence that failures have ended: the last 10 to 20 s had none, though at the minute's share of
// failures they would have had at least expectedFailures.
const expectedFailures = 5

// blamed counts the failures without the requests that were refused because an operator disabled the SSP.
func blamed(outcomes map[string]uint64) uint64 {
	return countFailed(outcomes) - outcomes[exchange.SSPDisabled.String()]
}

// since returns the difference of two counts of requests by outcome.
func since(before, outcomes map[string]uint64) map[string]uint64 {
	recent := make(map[string]uint64, len(outcomes))
	for name, n := range outcomes {
		recent[name] = n - min(n, before[name])
	}
	return recent
}

// commonestFailure returns the failure that most requests ended with, among the outcomes that pick
// accepts, or "" if no request failed. A request that was refused because an operator disabled the SSP is not a failure.
func commonestFailure(outcomes map[string]uint64, pick func(exchange.Outcome) bool) string {
	commonest := ""
	for o := range exchange.Outcomes {
		if name := o.String(); o.IsFailure() && o != exchange.SSPDisabled && pick(o) && outcomes[name] > outcomes[commonest] {
			commonest = name
		}
	}
	return commonest
}

// howFailed names the outcomes that at least a tenth of all failures have, the commonest first. It also names the commonest
// failure of the SSP if a hundredth of all failures have it, since the breaker may have refused the other requests because
// of it.
func howFailed(outcomes map[string]uint64) string {
	var named []string
	all, cause, rest := blamed(outcomes), commonestFailure(outcomes, blamesSSP), maps.Clone(outcomes)
	for {
		name := commonestFailure(rest, exchange.Outcome.IsFailure)
		n := rest[name]
		if 100*n < all || n == 0 {
			return strings.Join(named, ", ")
		}
		if 10*n >= all || name == cause {
			named = append(named, advice.Number(float64(n))+" as "+name)
		}
		delete(rest, name)
	}
}

func blamesSSP(o exchange.Outcome) bool { return o.Row().Blame == exchange.BlameSSP }

// total returns the number of all requests.
func (m *lastMinute) total() uint64 { return m.Requests + m.Filtered + m.Shaped }

// askedOf returns the number of requests without those that conditions on the body or qps.shape kept from SSPs.
func askedOf(outcomes map[string]uint64) uint64 {
	return allOf(outcomes) - outcomes[exchange.Filtered.String()] - outcomes[exchange.Shaped.String()]
}

func allOf(outcomes map[string]uint64) (n uint64) {
	for _, c := range outcomes {
		n += c
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

func countFailed(outcomes map[string]uint64) uint64 {
	return count(outcomes, exchange.Outcome.IsFailure)
}

// count counts the requests with the outcomes that pick accepts.
func count(outcomes map[string]uint64, pick func(exchange.Outcome) bool) (n uint64) {
	for o := range exchange.Outcomes {
		if pick(o) {
			n += outcomes[o.String()]
		}
	}
	return n
}

// The trend of an SSP covers ten minutes: trendPoints points, one every trendEvery looks.
const (
	trendPoints = 30
	trendEvery  = 10
)

// trend holds the points of the small chart in an SSP's row, in whole percent, oldest first.
type trend struct {
	Saturation []int `json:"saturation"` // the highest saturation in each point's interval
	Failed     []int `json:"failed"`     // the share of failures among the requests that ended in the interval

	looks    int
	highest  float64           // the highest saturation in the current interval
	outcomes map[string]uint64 // counts since start, at the beginning of the current interval
}

// look adds a point at the end of each interval. It is called every historyStep. outcomes counts requests since start.
func (t *trend) look(saturation float64, outcomes map[string]uint64) {
	t.highest = max(t.highest, saturation)
	t.looks++
	if t.looks%trendEvery != 0 {
		return
	}
	n := askedOf(outcomes) - askedOf(t.outcomes)
	share := 0
	if n > 0 {
		share = int(100 * (countFailed(outcomes) - countFailed(t.outcomes)) / n)
	}
	t.Saturation = push(t.Saturation, trendPoints, int(100*min(t.highest, 1)))
	t.Failed = push(t.Failed, trendPoints, share)
	t.highest, t.outcomes = saturation, outcomes
}
