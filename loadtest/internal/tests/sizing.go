package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// sizingOptions are the flags of the test sizing.
type sizingOptions struct {
	low  time.Duration // how long the low load lasts; 0 leaves it out
	only string        // only the courses whose names have this text
}

// never stands for the time of an event that did not happen, in seconds.
const never = 1e9

const (
	sizingTimeout  = 300 * time.Millisecond
	sizingCapacity = 100 // requests that an SSP with a capacity serves at once at full speed
	lowRate        = 2.0 // requests per second
)

// sizingLatency is the lognormal latency of SSPs, and sizingHold its mean in seconds.
var (
	sizingLatency = sspsim.Lognormal(80*time.Millisecond, 250*time.Millisecond)
	sizingHold    = 0.08 * math.Exp(math.Pow(math.Log(250.0/80)/2.326, 2)/2)
)

// bound is the highest permitted value of a figure, or the lowest if min is set.
type bound struct {
	limit   float64
	min     bool
	percent bool
}

func (b bound) held(v float64) bool { return b.min && v >= b.limit || !b.min && v <= b.limit }

func (b bound) text(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= never:
		return "never"
	case b.percent:
		return results.Percent(v)
	}
	return results.Number(v)
}

// String says what the figure must be.
func (b bound) String() string {
	if b.min {
		return "≥ " + b.text(b.limit)
	}
	return "≤ " + b.text(b.limit)
}

// trace is a load, and an SSP whose behaviour changes. TestSizerOnLiveTraces in internal/ssp/sizer simulates the same
// traces.
type trace struct {
	name    string
	phases  []load.Phase
	ssp     sspsim.Behaviour
	changes []change
	breaker bool // whether adbuffer has a breaker for the SSP
	figures []sizingFigure
}

// change is the behaviour of the SSP from a given second on.
type change struct {
	second int
	ssp    sspsim.Behaviour
}

// sizingFigure is a figure of a trace, with its bound.
type sizingFigure struct {
	name string
	bound
	of func(c *course) float64
}

// course is what one proxy did during a trace.
type course struct {
	*rig.Figures
	limits    []float64 // places, or Envoy's limit, at the end of each second
	decisions float64   // how many adbuffer made
}

// settled returns how many seconds after the second from the limit begins to stay within 15 % of want.
func (c *course) settled(from int, want float64) float64 {
	last := from
	for i := from; i < len(c.limits); i++ {
		if math.Abs(c.limits[i]/want-1) > 0.15 {
			last = i + 1
		}
	}
	if last >= len(c.limits)-1 {
		return never
	}
	return float64(last - from)
}

// peak returns the highest limit between two seconds.
func (c *course) peak(from, to int) float64 {
	to = min(to, len(c.limits))
	if from >= to {
		return math.NaN()
	}
	return slices.Max(c.limits[from:to])
}

func failedIn(phase string) func(*course) float64 {
	return func(c *course) float64 { return c.Phase(phase).FailedShare() }
}

// placesFor returns the places that a load needs.
func placesFor(rate, hold float64) float64 {
	return float64(capacity.Places(rate, time.Duration(hold*float64(time.Second)), capacity.DefaultWaitingShare))
}

func at(name string, seconds int, from, to float64) load.Phase {
	return load.Phase{Name: name, Duration: time.Duration(seconds) * time.Second, From: from, To: to}
}

func sizingTraces() []trace {
	usual := sspsim.Behaviour{Latency: sizingLatency}
	full, slow, hangs := usual, usual, usual
	full.Latency.Capacity = sizingCapacity
	slow.Latency = sspsim.Lognormal(80*time.Millisecond*3/2, 250*time.Millisecond*3/2)
	hangs.Faults.Stall = sspsim.Always
	slowHold := 1.42 * sizingHold // less than 1.5 times, since the deadline ends the longest requests
	return []trace{
		{"step: 500 to 2 000/s", []load.Phase{at("before", 15, 500, 500), at("step", 10, 2000, 2000), at("then", 10, 2000, 2000)}, usual, nil, false,
			[]sizingFigure{
				{"seconds until in band", bound{limit: 10}, func(c *course) float64 { return c.settled(15, placesFor(2000, sizingHold)) }},
				{"then failed", bound{limit: 0.03, percent: true}, failedIn("then")},
			}},
		{"full: 700 to 1 600/s, and a capacity for 1 100/s", []load.Phase{at("before", 15, 700, 700), at("rise", 10, 1600, 1600), at("then", 30, 1600, 1600)}, full, nil, false,
			[]sizingFigure{
				{"goodput of the capacity", bound{limit: 0.8, min: true, percent: true}, func(c *course) float64 {
					return float64(c.Phase("then").Answered) / 30 / (sizingCapacity / sizingHold)
				}},
				{"peak / capacity", bound{limit: 1.85}, func(c *course) float64 { return c.peak(15, 55) / sizingCapacity }},
			}},
		{"slower: hold × 1.5 for ever", []load.Phase{at("before", 15, 500, 500), at("slower", 30, 500, 500), at("then", 15, 500, 500)}, usual, []change{{15, slow}}, false,
			[]sizingFigure{
				{"seconds until in band", bound{limit: 30}, func(c *course) float64 { return c.settled(15, placesFor(500, slowHold)) }},
				{"N / need", bound{limit: 1.3}, func(c *course) float64 { return c.peak(59, 60) / placesFor(500, slowHold) }},
			}},
		{"flash: 0 to 4 000/s in 30 s", []load.Phase{at("rise", 30, 1, 4000), at("then", 5, 4000, 4000)}, usual, nil, false,
			[]sizingFigure{
				{"failed", bound{limit: 0.02, percent: true}, func(c *course) float64 { return c.FailedShare() }},
				{"N / need", bound{limit: 1.3}, func(c *course) float64 { return c.peak(34, 35) / placesFor(4000, sizingHold) }},
			}},
		{"outage: all hang for 10 s, with a breaker", []load.Phase{at("before", 15, 500, 500), at("hang", 10, 500, 500), at("after", 10, 500, 500), at("then", 10, 500, 500)}, usual,
			[]change{{15, hangs}, {25, usual}}, true,
			[]sizingFigure{
				{"N after / before", bound{limit: 1.3}, func(c *course) float64 { return c.peak(44, 45) / c.peak(14, 15) }},
				{"then failed", bound{limit: 0.03, percent: true}, failedIn("then")},
			}},
	}
}

func sizingCommand() Command {
	o := sizingOptions{}
	return Command{Name: "sizing", Short: "Pools that size themselves, beside Envoy's adaptive concurrency: five minutes",
		Question: "Does pool.auto find the size that a load needs, and does it stay small where more places do not help?",
		Long: `Loads a pool that sizes itself (pool.auto) with five courses: a step of the load, an SSP that
is full, one that becomes slower, a flash and an outage. Envoy with adaptive concurrency gets the
same at the same time, and the simulation of internal/ssp/sizer too. One table has their figures.
Envoy is taken from $ENVOY or $PATH. --low adds a low load, in which no limit may change. --scale
has no effect. The exit status is 1 if a promise was broken.`,
		Test:    func(e *rig.Rig) { sizing(e, o) },
		Example: "  ENVOY=$(scripts/envoy) go run ./loadtest sizing\n  go run ./loadtest sizing --low 1h",
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&o.only, "only", "", "only the courses with this `text` in their names")
			f.DurationVar(&o.low, "low", 20*time.Second, "how long a low load lasts; 0 leaves it out")
		},
		Check: func(*pflag.FlagSet) error {
			if o.low < 0 {
				return errors.New("--low must be at least 0")
			}
			return nil
		},
	}
}

func sizing(e *rig.Rig, o sizingOptions) {
	r := e.Rep
	r.Note("Poisson arrivals of GETs, a deadline of %v, and an SSP with a lognormal latency (median 80 ms, p99 250 ms). adbuffer has pool.auto between 16 "+
		"and 2,000 places, and a breaker only in the outage; its N is adbuffer_pool_auto_limit. Envoy's N is its concurrency_limit, at most 1,000; it refuses what exceeds it. "+
		"Both run at the same time on one core, each with its own SSP and clients. The need follows Erlang C.", sizingTimeout)
	simulated := simulate(e)
	programs := []string{"", "envoy"}
	if !e.Has("envoy") {
		programs = programs[:1]
	}
	t := r.Table(fmt.Sprintf("The same courses simulated (medians of %d) and live", simulatedCourses),
		"course", "figure", "simulated", "adbuffer", "Envoy, adaptive concurrency", "must be")
	for _, tr := range sizingTraces() {
		if !strings.Contains(tr.name, o.only) {
			continue
		}
		tr.show(r, t, simulated, tr.runAll(e, programs))
	}
	if o.low > 0 {
		lowLoad(e, o.low)
	}
}

// show adds the rows of the trace, and judges the figures of adbuffer.
func (tr *trace) show(r *results.Report, t *results.Table, simulated map[string]float64, courses []*course) {
	for _, f := range tr.figures {
		shown := []any{tr.name, f.name, "–", "–", "–", f.bound}
		if v, known := simulated[tr.name+": "+f.name]; known {
			shown[2] = f.text(v)
		}
		for i, c := range courses {
			shown[3+i] = f.text(f.of(c))
		}
		t.Add(courses[0].Doubts, shown...)
		r.Promise(fmt.Sprintf("%s: %s is %v", tr.name, f.name, f.bound), f.held(f.of(courses[0])), courses[0].Doubts, "%v.", shown[3])
	}
}

// runAll runs the trace with all programs at the same time.
func (tr *trace) runAll(e *rig.Rig, programs []string) []*course {
	e.Next("sizing: %s", tr.name)
	courses := make([]*course, len(programs))
	var running sync.WaitGroup
	for i, program := range programs {
		running.Go(func() { courses[i] = tr.run(e, program) })
	}
	running.Wait()
	e.Check(e.Ctx.Err())
	return courses
}

func (tr *trace) run(e *rig.Rig, program string) *course {
	route := &rig.Route{Name: "sizing", Adaptive: true, Timeout: sizingTimeout}
	s := e.Start(rig.Setup{Program: program, Route: route, Config: rig.Config{Deadline: sizingTimeout.String()},
		SSPs: []*rig.SSP{{Name: "ssp", Protocol: "http1", Behaviour: tr.ssp, Pool: "max_conns: 2000, auto: {enabled: true}",
			More: []string{fmt.Sprintf("breaker: {enabled: %v}", tr.breaker)}}}})
	defer s.Stop()
	plan := load.Plan{Protocol: load.KeepAlive, Open: true, Poisson: true, Connections: 1500, Timeout: time.Second, Phases: tr.phases,
		Templates: []load.Template{small}, Statuses: []int{200}}
	c := &course{}
	c.Figures = s.Measure(rig.GenerateWatched(plan, true, func(load.Progress) {
		c.limits = append(c.limits, limitOf(e, s, route))
		for _, change := range tr.changes {
			if change.second == len(c.limits) {
				s.SSPs[0].Set(change.ssp)
			}
		}
	}))
	if s.Adbuffer != nil {
		var shown struct {
			Pools []struct {
				Auto struct{ Counts map[string]float64 }
			}
		}
		e.Check(rig.GetJSON("http://"+s.Adbuffer.Admin+"/pools", &shown))
		for _, p := range shown.Pools {
			for _, n := range p.Auto.Counts {
				c.decisions += n
			}
		}
	}
	return c
}

// limitOf returns the limit in force of the proxy of a stage.
func limitOf(e *rig.Rig, s *rig.Stage, envoy *rig.Route) float64 {
	if s.Adbuffer != nil {
		return s.Adbuffer.Metric("adbuffer_pool_auto_limit")
	}
	var stats struct{ Stats []struct{ Value float64 } }
	e.Check(rig.GetJSON("http://"+envoy.Admin+"/stats?format=json&filter=gradient_controller.concurrency_limit", &stats))
	if len(stats.Stats) != 1 {
		e.Check(fmt.Errorf("%d concurrency limits of Envoy, want 1", len(stats.Stats)))
	}
	return stats.Stats[0].Value
}

// lowLoad sends a low rate of requests for a long time, during which the limit must not change.
func lowLoad(e *rig.Rig, length time.Duration) {
	low := trace{name: fmt.Sprintf("%v requests/s for %v", lowRate, length), ssp: sspsim.Behaviour{Latency: sizingLatency},
		phases: []load.Phase{{Name: "low", Duration: length, From: lowRate, To: lowRate}}}
	c := low.runAll(e, []string{""})[0]
	e.Rep.Table("A low load", "load", "requests", "decisions", "N").Add(c.Doubts, low.name, c.Offered, c.decisions, c.peak(0, len(c.limits)))
	e.Rep.Promise(low.name+": the limit does not change", c.decisions == 0, c.Doubts, "%v decisions.", c.decisions)
}

// simulatedCourses is how many courses are simulated. The figures are their medians.
const simulatedCourses = 20

// simulate runs the simulation of the traces, and returns its medians by the names of trace and figure.
func simulate(e *rig.Rig) (simulated map[string]float64) {
	e.Next("sizing: simulating %d courses", simulatedCourses)
	file := filepath.Join(e.Dir, "simulated.json")
	cmd := exec.CommandContext(e.Ctx, "go", "test", "-count", "1", "-run", "TestSizerOnLiveTraces", "./internal/ssp/sizer",
		"-args", "-seeds", fmt.Sprint(simulatedCourses), "-figures", file)
	cmd.Dir = e.ModuleRoot()
	out, failed := cmd.CombinedOutput()
	text, err := os.ReadFile(file)
	if err != nil {
		e.Check(fmt.Errorf("the simulation: %w\n%s", errors.Join(failed, err), out))
	}
	if failed != nil {
		e.Rep.Note("The simulation broke a bound of its own:\n%s", out)
	}
	e.Check(json.Unmarshal(text, &simulated))
	return simulated
}
