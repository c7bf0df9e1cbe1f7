package load

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms keep three significant digits. A latency above longest is recorded as longest.
const (
	shortest = time.Microsecond
	longest  = 2 * time.Minute
)

// NewHistogram returns a histogram of latencies.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(shortest), int64(longest), 3)
}

// Record adds a latency to h.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(max(0, min(d, longest)))) // the value is in range
}

// recorder chooses the requests of a run, and counts them and their responses.
type recorder struct {
	plan   *Plan
	report func(Progress) // called after each interval; may be nil

	mu          sync.Mutex // guards the fields below
	requests    *set
	connections uint64 // that were opened
	cells       []cell // by phase and class
	tick        *hdrhistogram.Histogram
	errors      uint64                  // errors since the last tick
	lag         *hdrhistogram.Histogram // delay between the planned time of a request and the moment the generator saw it
	last        time.Duration           // time of the last response, since the first phase
	sent        uint64                  // requests
}

// flight is a request that is sent, or that fails before it is sent.
type flight struct {
	arrival
	*request
	number uint64
	sent   time.Time
}

// Progress is one interval of a run, including the warm-up.
type Progress struct {
	Second   float64 // end of the interval, since the start
	Answered int64
	Errors   uint64
	P50, P99 float64 // milliseconds
}

// cell holds the sums of one class of requests in one phase.
type cell struct {
	Summary                         // without the figures that latency gives
	latency *hdrhistogram.Histogram // of successful and failed requests; nil before the first one
}

func newRecorder(plan *Plan, report func(Progress)) *recorder {
	return &recorder{plan: plan, report: report, requests: newSet(plan), tick: NewHistogram(), lag: NewHistogram(),
		cells: make([]cell, len(plan.Phases)*len(plan.Templates))}
}

func (r *recorder) cell(phase, class int) *cell {
	c := &r.cells[phase*len(r.plan.Templates)+class]
	if c.latency == nil {
		c.latency, c.Errors, c.Statuses = NewHistogram(), map[string]uint64{}, map[int]uint64{}
	}
	return c
}

// seen records how late the generator saw a due request.
func (r *recorder) seen(lag time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.lag.RecordValue(int64(max(lag, 0))) // a lag above two minutes is not recorded
}

// begin chooses the request of an arrival, and counts it.
func (r *recorder) begin(a arrival) flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	f := flight{a, r.requests.choose(), r.sent, time.Now()}
	c := r.cell(f.phase, f.class)
	c.Offered++
	c.Fills += f.rate
	return f
}

func (r *recorder) connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connections++
}

// response has the parts of a response that are judged. Its slices are valid until the next response is read.
type response struct {
	status int
	source []byte // X-Adbuffer-Source, which distinguishes the errors of the proxy
	echo   []byte // X-Echo-Cb, which simulated SSPs can send
	body   []byte
}

// received counts the response to a request. now is its time since the first phase.
func (r *recorder) received(f flight, a response, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = max(r.last, now)
	latency := now - f.due
	c := r.cell(f.phase, f.class)
	if f.rate > 0 && string(a.source) == "proxy/shaped" {
		c.Shaped += f.rate
	}
	switch {
	case !r.plan.expects(a.status):
		c.Statuses[a.status]++
		kind := "status " + strconv.Itoa(a.status)
		if len(a.source) > 0 {
			kind += " " + string(a.source)
		}
		r.fail(c, kind, latency)
	case !r.plan.isResponse(a, f.number):
		r.fail(c, wrongResponse, latency)
	case r.plan.Deadline > 0 && latency > r.plan.Deadline:
		r.fail(c, Late, latency)
	default:
		c.Statuses[a.status]++
		c.Answered++
		Record(c.latency, latency)
		Record(r.tick, latency)
	}
}

func (r *recorder) failed(f flight, kind string, now time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(r.cell(f.phase, f.class), kind, now-f.due)
}

func (r *recorder) unsolicited(phase int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(r.cell(phase, 0), unsolicited, 0)
}

// fail counts a failed request. The time until it failed is recorded as its latency, because without the
// slowest requests the percentiles would be too low.
func (r *recorder) fail(c *cell, kind string, latency time.Duration) {
	// The server chooses the names of some kinds, so their number has a limit.
	if _, known := c.Errors[kind]; !known && len(c.Errors) >= 200 {
		kind = other
	}
	c.Failed++
	c.Errors[kind]++
	r.errors++
	Record(c.latency, latency)
	Record(r.tick, latency)
}

// endInterval reports the interval that ends at now, which counts from the first phase.
func (r *recorder) endInterval(now time.Duration) {
	r.mu.Lock()
	p := Progress{Second: now.Seconds(), Errors: r.errors, Answered: r.tick.TotalCount() - int64(r.errors),
		P50: ms(r.tick.ValueAtQuantile(50)), P99: ms(r.tick.ValueAtQuantile(99))}
	r.tick.Reset()
	r.errors = 0
	r.mu.Unlock()
	if r.report != nil {
		r.report(p)
	}
}

func ms(nanoseconds int64) float64 { return round(float64(nanoseconds)/1e6, 4) }

func round(v float64, digits int) float64 {
	p := math.Pow(10, float64(digits))
	return math.Round(v*p) / p
}
