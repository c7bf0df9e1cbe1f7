package load

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histograms keep three significant digits. A latency above longest counts as longest.
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

// recorder counts the requests and responses of all threads of a run.
type recorder struct {
	plan   *Plan
	report func(Progress) // called after each interval; may be nil

	mu       sync.Mutex // guards the fields below
	cells    []cell     // by phase and class
	tick     *hdrhistogram.Histogram
	errors   uint64        // errors since the last tick
	nextTick time.Duration // end of the interval, since the first phase
	timeline []Tick
	lag      *hdrhistogram.Histogram // delay between the planned time of a request and the moment the generator saw it
	last     time.Duration           // time of the last response, since the first phase
	// Numbers of requests: due in an open loop, sent, and completed or failed.
	due, sent, ended uint64
}

// Progress is one interval of a run.
type Progress struct {
	Tick
	Waiting uint64 // outstanding requests
}

type cell struct {
	latency  *hdrhistogram.Histogram // of successful and failed requests
	offered  uint64
	answered uint64 // expected responses
	errors   map[string]uint64
	statuses [600]uint32
	bytes    int64 // total of all bodies
}

// Tick is one interval of the run, including the warm-up.
type Tick struct {
	Second   float64 `json:"second"` // end of the interval, since the start
	Answered int64   `json:"answered"`
	Errors   uint64  `json:"errors"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Max      float64 `json:"max_ms"`
}

func newRecorder(plan *Plan, report func(Progress)) *recorder {
	return &recorder{plan: plan, report: report, cells: make([]cell, len(plan.Phases)*len(plan.Templates)),
		nextTick: plan.Tick,
		tick:     NewHistogram(), lag: NewHistogram()}
}

func (r *recorder) cell(phase, class int) *cell {
	c := &r.cells[phase*len(r.plan.Templates)+class]
	if c.latency == nil {
		c.latency, c.errors = NewHistogram(), map[string]uint64{}
	}
	return c
}

// Due counts a request that is due.
func (r *recorder) Due() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due++
}

// Seen records how late the generator saw a due request.
func (r *recorder) Seen(lag time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.lag.RecordValue(int64(max(lag, 0))) // a lag above two minutes is not recorded
}

// Sent counts a request.
func (r *recorder) Sent(phase, class int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent++
	r.cell(phase, class).offered++
}

// response has the parts of a response that count. Its slices are valid until the next one.
type response struct {
	status int
	source []byte // X-Adbuffer-Source
	echo   []byte // X-Echo-Cb, which simulated SSPs can send
	body   []byte
}

// Received counts the response to the request with this number. at is its time since the first
// phase.
func (r *recorder) Received(phase, class int, number uint64, a response, latency, at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	r.last = max(r.last, at)
	switch {
	case !r.plan.expects(a.status):
		r.badStatus(phase, class, a.status, a.source, latency)
	case !r.plan.isResponse(a, number):
		r.failed(phase, class, wrongResponse, latency)
	case r.plan.Deadline > 0 && latency > r.plan.Deadline:
		r.failed(phase, class, Late, latency)
	default:
		r.succeeded(phase, class, a.status, int64(len(a.body)), latency)
	}
}

// Failed counts a request without a response.
func (r *recorder) Failed(phase, class int, kind string, latency time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended++
	r.failed(phase, class, kind, latency)
}

// Unsolicited counts bytes on a connection without a request.
func (r *recorder) Unsolicited(phase int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed(phase, 0, unsolicited, 0)
}

// succeeded counts an expected response.
func (r *recorder) succeeded(phase, class, status int, body int64, latency time.Duration) {
	c := r.cell(phase, class)
	c.answered++
	c.bytes += body
	if status < len(c.statuses) {
		c.statuses[status]++
	}
	Record(c.latency, latency)
	Record(r.tick, latency)
}

// badStatus counts a response with an unexpected status. source is the value of X-Adbuffer-Source,
// which distinguishes the errors of the proxy.
func (r *recorder) badStatus(phase, class, status int, source []byte, latency time.Duration) {
	c := r.cell(phase, class)
	if status < len(c.statuses) {
		c.statuses[status]++
	}
	name := "status " + strconv.Itoa(status)
	if len(source) > 0 {
		name += " " + string(source)
	}
	r.failed(phase, class, name, latency)
}

// failed counts a failed request. Its time counts as a latency, because without the slowest
// requests the percentiles would be too low.
func (r *recorder) failed(phase, class int, kind string, latency time.Duration) {
	c := r.cell(phase, class)
	// The server chooses the names of some kinds, so their number has a limit.
	if _, known := c.errors[kind]; !known && len(c.errors) >= 200 {
		kind = "other"
	}
	c.errors[kind]++
	r.errors++
	Record(c.latency, latency)
	Record(r.tick, latency)
}

// Tick closes the interval of the timeline and reports it, if the interval is over at now.
func (r *recorder) Tick(now time.Duration) {
	r.mu.Lock()
	if now < r.nextTick {
		r.mu.Unlock()
		return
	}
	r.nextTick += r.plan.Tick
	p := Progress{Tick: r.roll(now), Waiting: max(r.due, r.sent) - r.ended}
	r.mu.Unlock()
	if r.report != nil {
		r.report(p)
	}
}

// roll closes the interval of the timeline at now, which counts from the first phase.
func (r *recorder) roll(now time.Duration) Tick {
	t := Tick{Second: round(now.Seconds(), 3), Errors: r.errors,
		P50: ms(r.tick.ValueAtQuantile(50)), P99: ms(r.tick.ValueAtQuantile(99)), Max: ms(r.tick.Max())}
	t.Answered = r.tick.TotalCount() - int64(r.errors)
	r.tick.Reset()
	r.errors = 0
	r.timeline = append(r.timeline, t)
	return t
}

func ms(nanoseconds int64) float64 { return round(float64(nanoseconds)/1e6, 4) }

func round(v float64, digits int) float64 {
	p := math.Pow(10, float64(digits))
	return math.Round(v*p) / p
}
