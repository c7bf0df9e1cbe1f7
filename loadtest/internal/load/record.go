package load

import (
	"math"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The range of latencies, with three significant digits. What is longer counts
// as the longest.
const (
	shortest = time.Microsecond
	longest  = 2 * time.Minute
)

// NewHistogram returns one for latencies.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(shortest), int64(longest), 3)
}

// Record adds a latency.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(max(0, min(d, longest)))) // in range
}

// recorder is one thread's book. Its methods are for that thread.
type recorder struct {
	phases   int
	classes  int
	cells    []cell // by phase and class; a cell is made when first used
	tick     *hdrhistogram.Histogram
	errors   uint64 // since the last tick
	Timeline []Tick
	// Lag is how late the generator itself looked at requests that were due.
	Lag *hdrhistogram.Histogram

	names map[errorName]string
}

type cell struct {
	latency  *hdrhistogram.Histogram // of responses, and of requests that timed out
	offered  uint64
	answered uint64 // as expected
	errors   map[string]uint64
	statuses [600]uint32
	bytes    int64 // of bodies
}

type errorName struct {
	status int
	source string
}

// Tick is one interval of the whole run, warm-up included.
type Tick struct {
	Second   float64 `json:"second"` // its end, since the start
	Answered int64   `json:"answered"`
	Errors   uint64  `json:"errors"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Max      float64 `json:"max_ms"`
}

// newRecorder returns a Recorder for so many phases and classes of requests.
func newRecorder(phases, classes int) *recorder {
	return &recorder{phases: phases, classes: classes, cells: make([]cell, phases*classes),
		tick: NewHistogram(), Lag: NewHistogram(), names: map[errorName]string{}}
}

func (r *recorder) cell(phase, class int) *cell {
	c := &r.cells[phase*r.classes+class]
	if c.latency == nil {
		c.latency, c.errors = NewHistogram(), map[string]uint64{}
	}
	return c
}

// Offered counts a request that was due, or that a closed loop sent.
func (r *recorder) Offered(phase, class int) { r.cell(phase, class).offered++ }

// Response counts a response of the expected kind.
func (r *recorder) Response(phase, class, status int, body int64, latency time.Duration) {
	c := r.cell(phase, class)
	c.answered++
	c.bytes += body
	if status < len(c.statuses) {
		c.statuses[status]++
	}
	Record(c.latency, latency)
	Record(r.tick, latency)
}

// BadStatus counts a response with a status that is not expected. source is
// what X-Adbuffer-Source says, which tells the proxy's errors apart.
func (r *recorder) BadStatus(phase, class, status int, source []byte, latency time.Duration) {
	name, ok := r.names[errorName{status, string(source)}]
	if !ok {
		if name = "status " + strconv.Itoa(status); len(source) > 0 {
			name += " " + string(source)
		}
		// The number of names is bounded where the peer sends what it likes.
		if len(r.names) < 200 {
			r.names[errorName{status, string(source)}] = name
		}
	}
	c := r.cell(phase, class)
	if status < len(c.statuses) {
		c.statuses[status]++
	}
	r.Error(phase, class, name, latency)
}

// Error counts a request that failed. Its time counts among the latencies: without the slowest
// requests the figures would flatter.
func (r *recorder) Error(phase, class int, kind string, latency time.Duration) {
	c := r.cell(phase, class)
	if _, known := c.errors[kind]; !known && len(c.errors) >= 200 {
		kind = "other"
	}
	c.errors[kind]++
	r.errors++
	Record(c.latency, latency)
	Record(r.tick, latency)
}

// Roll ends an interval of the timeline at now since the start.
func (r *recorder) Roll(now time.Duration) Tick {
	t := Tick{Second: round(now.Seconds(), 3), Errors: r.errors,
		P50: ms(r.tick.ValueAtQuantile(50)), P99: ms(r.tick.ValueAtQuantile(99)), Max: ms(r.tick.Max())}
	t.Answered = r.tick.TotalCount() - int64(r.errors)
	r.tick.Reset()
	r.errors = 0
	r.Timeline = append(r.Timeline, t)
	return t
}

func ms(nanoseconds int64) float64 { return round(float64(nanoseconds)/1e6, 4) }

func round(v float64, digits int) float64 {
	p := math.Pow(10, float64(digits))
	return math.Round(v*p) / p
}
