package load

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Summary is what came of the requests of one phase, of one class, or of all.
type Summary struct {
	Name     string            `json:"name"`
	Seconds  float64           `json:"seconds"`
	Offered  uint64            `json:"offered"` // due, or sent by a closed loop
	Answered uint64            `json:"answered"`
	Failed   uint64            `json:"failed"`
	Errors   map[string]uint64 `json:"errors"` // by kind
	Statuses map[int]uint64    `json:"statuses"`
	Rate     float64           `json:"rate"` // responses a second
	Body     int64             `json:"body_bytes"`
	Latency  Latency           `json:"latency"`
	Classes  []Summary         `json:"classes,omitempty"` // if there is more than one
}

// Latency is a spread of times, in milliseconds. Requests that failed count
// with the time they took to fail.
type Latency struct {
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
	Curve []Point `json:"curve,omitempty"`
}

// Point of a curve of latency over percentiles.
type Point struct {
	Percentile float64 `json:"percentile"`
	MS         float64 `json:"ms"`
}

// FailedShare returns the share of the requests that failed.
func (s Summary) FailedShare() float64 {
	if n := s.Answered + s.Failed; n > 0 {
		return float64(s.Failed) / float64(n)
	}
	return 0
}

// stretch names a phase for Summarize.
type stretch struct {
	Name     string
	Duration time.Duration
	Recorded bool
}

// summarize adds the classes up. whole sums the recorded phases up.
func (r *recorder) summarize(phases []stretch) (whole Summary, each []Summary) {
	var classes []string
	for _, t := range r.plan.Templates {
		classes = append(classes, t.Name)
	}
	sum := newSummed("all", classes)
	for p, phase := range phases {
		s := newSummed(phase.Name, classes)
		for c := range classes {
			counted := &r.cells[p*len(classes)+c]
			s.add(c, counted)
			if phase.Recorded {
				sum.add(c, counted)
			}
		}
		s.all.Seconds = phase.Duration.Seconds()
		if phase.Recorded {
			sum.all.Seconds += s.all.Seconds
		}
		each = append(each, s.summary())
	}
	return sum.summary(), each
}

// summed is a Summary in the making.
type summed struct {
	all      Summary
	classes  []Summary
	hist     *hdrhistogram.Histogram
	byClass  []*hdrhistogram.Histogram
	hasClass bool
}

func newSummed(name string, classes []string) *summed {
	s := &summed{all: emptySummary(name), hist: NewHistogram(), hasClass: len(classes) > 1}
	for _, c := range classes {
		s.classes = append(s.classes, emptySummary(c))
		s.byClass = append(s.byClass, NewHistogram())
	}
	return s
}

func emptySummary(name string) Summary {
	return Summary{Name: name, Errors: map[string]uint64{}, Statuses: map[int]uint64{}}
}

func (s *summed) add(class int, c *cell) {
	if c.latency == nil {
		return
	}
	for _, to := range []*Summary{&s.all, &s.classes[class]} {
		to.Offered += c.offered
		to.Answered += c.answered
		to.Body += c.bytes
		for kind, n := range c.errors {
			to.Errors[kind] += n
			to.Failed += n
		}
		for status, n := range c.statuses {
			if n > 0 {
				to.Statuses[status] += uint64(n)
			}
		}
	}
	s.hist.Merge(c.latency)
	s.byClass[class].Merge(c.latency)
}

func (s *summed) summary() Summary {
	out := s.all
	out.Latency = LatencyOf(s.hist, true)
	out.Rate = rate(out)
	if s.hasClass {
		for i, c := range s.classes {
			c.Seconds = out.Seconds
			c.Latency = LatencyOf(s.byClass[i], false)
			c.Rate = rate(c)
			out.Classes = append(out.Classes, c)
		}
	}
	return out
}

func rate(s Summary) float64 {
	if s.Seconds <= 0 {
		return 0
	}
	return round(float64(s.Answered)/s.Seconds, 2)
}

// LatencyOf returns the percentiles of a histogram, and their curve if asked to.
func LatencyOf(h *hdrhistogram.Histogram, curve bool) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	l := Latency{Mean: round(h.Mean()/1e6, 4), P50: ms(h.ValueAtQuantile(50)), P90: ms(h.ValueAtQuantile(90)),
		P95: ms(h.ValueAtQuantile(95)), P99: ms(h.ValueAtQuantile(99)), P999: ms(h.ValueAtQuantile(99.9)), Max: ms(h.Max())}
	if curve {
		for _, p := range []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99} {
			if float64(h.TotalCount())*(100-p)/100 < 1 {
				break // fewer than one request lies above
			}
			l.Curve = append(l.Curve, Point{p, ms(h.ValueAtQuantile(p))})
		}
	}
	return l
}
