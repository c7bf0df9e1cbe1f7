//go:build !race

package shaper

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	seeds    = flag.Int("seeds", 0, "how many worlds of each row TestSimulation simulates; 0: a few short rows in one world")
	firstOne = flag.Uint64("first-seed", 1, "the first world of TestSimulation")
	onlyRows = flag.String("rows", "", "the rows of TestSimulation, as their letters; empty: all")
)

// tally counts what happened to requests. Fills are expected ones, by the true rates.
type tally struct {
	arrivals, dropped float64
	oracle            float64 // fills of an oracle with the same limit
	got               float64 // fills of requests that were sent
	all               float64 // fills of all requests
}

// minus returns what happened after o.
func (t tally) minus(o tally) tally {
	return tally{t.arrivals - o.arrivals, t.dropped - o.dropped, t.oracle - o.oracle, t.got - o.got, t.all - o.all}
}

// share returns the fills as a share of the oracle's.
func (t tally) share() float64 { return t.got / t.oracle }

// loss returns the share of all fills that was not received.
func (t tally) loss() float64 { return 1 - t.got/t.all }

// coverage counts whether intervals of reports hold the truth.
type coverage struct {
	windows, held float64
	bias          float64 // sum of estimates minus truths
}

func (c *coverage) add(low, estimate, high, truth float64) {
	c.windows++
	c.bias += estimate - truth
	if low <= truth && truth <= high {
		c.held++
	}
}

func (c *coverage) addAll(o coverage) {
	c.windows, c.held, c.bias = c.windows+o.windows, c.held+o.held, c.bias+o.bias
}

// coverages are those of reports with a limit only, and of those with max_loss.
type coverages struct{ ten, thirty, maxLoss coverage }

// replica is one process in front of the SSP.
type replica struct {
	shaper  *Shaper // nil: drops at random
	share   float64 // of the traffic
	limit   float64
	tokens  float64
	filled  float64 // when tokens were added
	demand  float64 // arrivals in this second
	pending []outcome

	lost, fills float64 // of dropped requests, expected; of sent ones, measured
	marks       [2]mark // when the windows of 10 and of 30 minutes began
}

// mark is the state of a replica at a moment.
type mark struct {
	lost, fills, lostFills, lostVariance float64
}

// outcome is the outcome of a request that is under way.
type outcome struct {
	at      float64
	segment Segment
	d       Decision
	fill    bool
}

// Behaviours of the SSP.
const (
	responds = iota
	timesOut
	bidsNothing
)

// run is one simulation.
type run struct {
	w        *world
	random   *rand.Rand
	rate     func(t float64) float64 // requests a second
	limit    float64                 // of all replicas; 0: none
	ssp      int                     // responds, timesOut or bidsNothing
	latency  float64                 // seconds
	hedges   float64                 // share of requests that take a second token
	cap      []float64               // fills that each segment still has in this minute; nil: no caps
	caps     []float64               // fills that each segment has in a minute
	leases   bool                    // replicas' limits follow their demand
	replicas []*replica
	t        float64
	sum      tally
	seconds  []tally // sum at the end of each second
	c        *coverages
	without  string // the rule that is switched off
}

// newRun returns a simulation with one replica.
func newRun(w *world, s Settings, perSecond float64, c *coverages) *run {
	return newFleet(w, s, perSecond, 1, c)
}

// newFleet returns a simulation whose replicas have equal shares of traffic and limit.
func newFleet(w *world, s Settings, perSecond float64, replicas int, c *coverages) *run {
	r := &run{w: w, random: w.random, limit: s.Limit, rate: func(float64) float64 { return perSecond }, c: c}
	s.Keys = 3
	if s.Explore == 0 {
		s.Explore = 0.03
	}
	s.Limit /= float64(replicas)
	s.Burst = int(burst(s.Limit))
	for i := range replicas {
		r.replicas = append(r.replicas, &replica{
			shaper: New(s, w.random.Uint64()+uint64(i), t0), share: 1 / float64(replicas), limit: s.Limit, tokens: float64(s.Burst),
		})
	}
	return r
}

// burst returns the burst of a limit, if the configuration names none.
func burst(limit float64) float64 { return math.Floor(max(limit/10, min(limit, 20))) }

// atRandom makes the run drop at random instead.
func (r *run) atRandom() *run {
	for _, p := range r.replicas {
		p.shaper = nil
	}
	return r
}

// minutes lets the run go on for some minutes, and returns what happened in them.
func (r *run) minutes(n float64) tally {
	before := r.sum
	for end := r.t + 60*n; r.t < end-0.5; {
		r.oneSecond()
	}
	return r.sum.minus(before)
}

// oneSecond lets the run go on for a second. It begins and ends at a whole second.
func (r *run) oneSecond() {
	begin := math.Round(r.t)
	perSecond := r.rate(begin)
	if r.cap != nil && math.Mod(begin, 60) == 0 {
		copy(r.cap, r.caps)
	}
	share := 1.0
	if r.limit > 0 {
		share = r.limit / (1 + r.hedges) / perSecond
	}
	r.sum.oracle += perSecond * r.w.oracle(share)
	for t := begin + r.random.ExpFloat64()/perSecond; t < begin+1; t += r.random.ExpFloat64() / perSecond {
		r.t = t
		r.request()
	}
	r.t = begin + 1
	for _, p := range r.replicas {
		p.settle(r.t)
		if p.shaper != nil {
			p.shaper.switchOff(r.without)
		}
		if r.leases {
			p.limit = r.limit * (0.1/float64(len(r.replicas)) + 0.9*p.demand/perSecond)
			p.shaper.SetLimit(p.limit)
		}
		p.demand = 0
		if p.shaper != nil && r.c != nil {
			p.measure(r, r.t)
		}
	}
	r.seconds = append(r.seconds, r.sum)
}

// request lets a request arrive.
func (r *run) request() {
	p := r.replicas[0]
	if len(r.replicas) > 1 {
		p = r.pick()
	}
	now := at(r.t)
	p.settle(r.t)
	var seg Segment
	rate, which := r.w.draw(&seg)
	p.demand++
	r.sum.arrivals++
	r.sum.all += rate
	if p.limit > 0 {
		p.tokens = min(burst(p.limit), p.tokens+(r.t-p.filled)*p.limit)
		p.filled = r.t
	}
	var d Decision
	if p.shaper != nil {
		tokens := p.tokens
		switch burst := burst(p.limit); r.without {
		case "stricter on few tokens":
			tokens = max(tokens, burst/2)
		case "laxer on many tokens":
			tokens = min(tokens, burst/2)
		case "prefixes":
			seg = Segment{seg[2]}
		}
		if d = p.shaper.Decide(&seg, tokens, now); d.Kind == Dropped {
			r.sum.dropped++
			p.lost += rate
			return
		}
	}
	if p.limit > 0 {
		if p.tokens < 1 {
			if p.shaper != nil {
				p.shaper.Unsent(d, now)
			}
			return
		}
		p.tokens--
		if r.hedges > 0 && p.tokens >= 1 && r.random.Float64() < r.hedges {
			p.tokens--
		}
	}
	fill := r.random.Float64() < rate && r.ssp == responds
	if r.cap != nil && rate >= 0.05 {
		if fill && r.cap[which] < 1 {
			fill = false
		}
		if fill {
			r.cap[which]--
			r.sum.got++
		}
	} else {
		r.sum.got += rate
	}
	if fill {
		p.fills++
	}
	if p.shaper == nil || r.ssp == timesOut {
		return
	}
	if r.latency > 0 {
		p.pending = append(p.pending, outcome{r.t + r.latency, seg, d, fill})
		return
	}
	p.shaper.Learn(&seg, d, fill, now)
}

// switchOff keeps a rule from having an effect. It runs each second.
func (s *Shaper) switchOff(rule string) {
	switch rule {
	case "ρ":
		for i := range s.model.worth {
			s.model.worth[i] = worth{1, 1, 1}
		}
	case "half-life":
		s.learning.taught = false
	case "pause":
		s.learning.missed = 0
	case "reset":
		for i := range s.model.table.sets {
			for j := range s.model.table.sets[i] {
				s.model.table.sets[i][j].run = 0
			}
		}
	case "prefixes":
		s.model.keys = 1
	}
}

// pick returns the replica of a request.
func (r *run) pick() *replica {
	var sum float64
	for _, p := range r.replicas {
		sum += p.share
	}
	x := r.random.Float64() * sum
	for _, p := range r.replicas {
		if x -= p.share; x < 0 {
			return p
		}
	}
	return r.replicas[0]
}

// settle tells the shaper outcomes that have arrived by t.
func (p *replica) settle(t float64) {
	for len(p.pending) > 0 && p.pending[0].at <= t {
		o := &p.pending[0]
		p.shaper.Learn(&o.segment, o.d, o.fill, at(t))
		p.pending = p.pending[1:]
	}
}

// measure compares the report with the truth at the end of 10 and 30 minutes. Windows of 30 minutes are differences of
// counters, as a query of Prometheus has them.
func (p *replica) measure(r *run, t float64) {
	if math.Mod(t, 600) != 0 {
		return
	}
	report := p.shaper.Report(at(t - 0.001))
	now := mark{p.lost, p.fills, report.LostFills, report.LostVariance}
	maxLoss := p.shaper.settings.MaxLoss > 0
	if m := p.marks[0]; report.State != Cold && report.TenMinutes.Dropped > 0 && now.fills > m.fills {
		truth := (now.lost - m.lost) / (now.lost - m.lost + now.fills - m.fills)
		w := report.TenMinutes
		if maxLoss {
			r.c.maxLoss.add(w.Low, w.Estimate, w.High, truth)
		} else {
			r.c.ten.add(w.Low, w.Estimate, w.High, truth)
		}
	}
	p.marks[0] = now
	if math.Mod(t, 1800) != 0 {
		return
	}
	if m := p.marks[1]; report.State != Cold && now.lost > m.lost && !maxLoss {
		lost, fills := now.lostFills-m.lostFills, now.fills-m.fills
		low, high := interval(lost, now.lostVariance-m.lostVariance, p.shaper.weight-1)
		of := func(lost float64) float64 { return lost / (lost + fills) }
		r.c.thirty.add(of(low), of(lost), of(high), of(now.lost-m.lost))
	}
	p.marks[1] = now
}

// secondsTo returns after how many seconds a window of 20 seconds first had the given share of the oracle's fills.
func (r *run) secondsTo(share float64) float64 {
	for i := 20; i < len(r.seconds); i++ {
		if r.seconds[i].minus(r.seconds[i-20]).share() >= share {
			return float64(i + 1)
		}
	}
	return math.Inf(1)
}

// worst returns the largest loss in any window of the given seconds.
func (r *run) worst(seconds int) (loss float64) {
	for i := seconds; i < len(r.seconds); i++ {
		loss = max(loss, r.seconds[i].minus(r.seconds[i-seconds]).loss())
	}
	return loss
}

// results are the cells of the table, in the order in which rows add them.
type results struct {
	order []string
	cells map[string]*cell
}

// cell is one figure, with its values in all worlds and its pass mark.
type cell struct {
	name    string
	values  []float64
	bound   float64
	compare string // ">=", "<=", "median <=", "never >" or ""
}

// add adds the value of a cell in one world. compare says how the values must compare with the bound.
func (t *results) add(name, compare string, bound, value float64) {
	if t.cells[name] == nil {
		t.cells[name] = &cell{name: name, compare: compare, bound: bound}
		t.order = append(t.order, name)
	}
	t.cells[name].values = append(t.cells[name].values, value)
}

func (t *results) atLeast(name string, bound, value float64) { t.add(name, ">=", bound, value) }
func (t *results) atMost(name string, bound, value float64)  { t.add(name, "<=", bound, value) }
func (t *results) medianAtMost(name string, bound, value float64) {
	t.add(name, "median <=", bound, value)
}
func (t *results) never(name string, bound, value float64) { t.add(name, "never >", bound, value) }
func (t *results) note(name string, value float64)         { t.add(name, "", 0, value) }

// of returns the mean, the least and the greatest value. It returns the median instead of the mean of times, since the time
// to what a world never reaches is infinite.
func (c *cell) of() (middle, least, greatest float64) {
	least, greatest = slices.Min(c.values), slices.Max(c.values)
	n := len(c.values)
	if c.compare == "median <=" {
		sorted := slices.Sorted(slices.Values(c.values))
		return (sorted[(n-1)/2] + sorted[n/2]) / 2, least, greatest
	}
	for _, v := range c.values {
		middle += v / float64(n)
	}
	return middle, least, greatest
}

// passes reports whether the cell meets its pass mark.
func (c *cell) passes() bool {
	middle, _, greatest := c.of()
	switch c.compare {
	case ">=":
		return middle >= c.bound
	case "<=", "median <=":
		return middle <= c.bound
	case "never >":
		return greatest <= c.bound
	}
	return true
}

func (t *results) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cell\tmean or median\tleast\tgreatest\tpass mark\t")
	for _, name := range t.order {
		c := t.cells[name]
		middle, least, greatest := c.of()
		mark, verdict := "", ""
		if c.compare != "" {
			mark = fmt.Sprintf("%s %.4g", c.compare, c.bound)
			verdict = map[bool]string{true: "met", false: "MISSED"}[c.passes()]
		}
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%.4g\t%s\t%s\n", name, middle, least, greatest, mark, verdict)
	}
	w.Flush()
	return b.String()
}

// Numbers of values of the three keys.
var (
	segments50    = [3]int{5, 5, 2}
	segments4000  = [3]int{20, 20, 10}
	segments20000 = [3]int{40, 25, 20}
)

// settled returns the fills under a limit, in percent of those of an oracle with the same limit. It counts the minutes
// that follow the minutes of learning. limit and rate are requests a second.
func settled(w *world, limit, rate, learning, minutes float64, c *coverages) float64 {
	r := newRun(w, Settings{Limit: limit}, rate, c)
	r.minutes(learning)
	return 100 * r.minutes(minutes).share()
}

// rows are the rows of the table, by their letters.
var rows = []struct {
	letter string
	run    func(seed uint64, t *results, c *coverages)
}{
	{"a", func(seed uint64, t *results, c *coverages) {
		for i, pass := range [3]float64{90, 96, 98} {
			limit := [3]float64{10, 40, 80}[i]
			t.atLeast(fmt.Sprintf("a. limit %v %%: %% of the oracle's fills", limit), pass, settled(newWorld(seed, segments4000), limit*20, 2000, 15, 15, c))
			if i == 0 {
				r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, nil).atRandom()
				t.note("a. limit 10 %, at random", 100*r.minutes(5).share())
			}
		}
	}},
	{"b", func(seed uint64, t *results, c *coverages) {
		t.atLeast("b. 20 000 segments, 20 % of 2 000/s", 92, settled(newWorld(seed, segments20000), 400, 2000, 15, 15, c))
		t.atLeast("b. 20 000 segments, 10 % of 10 000/s, minutes 5 to 15", 84, settled(newWorld(seed, segments20000), 1000, 10000, 5, 10, c))
	}},
	{"c", func(seed uint64, t *results, c *coverages) {
		t.atLeast("c. 50 segments, 15 of 100/s", 88, settled(newWorld(seed, segments50), 15, 100, 15, 15, c))
		t.atLeast("c. 50 segments, 10 % of 2 000/s", 95, settled(newWorld(seed, segments50), 200, 2000, 5, 5, c))
	}},
	{"d", func(seed uint64, t *results, c *coverages) {
		for i, pass := range [3]float64{600, 240, 90} {
			limit := [3]float64{10, 20, 40}[i]
			r := newRun(newWorld(seed, segments4000), Settings{Limit: limit * 20}, 2000, c)
			r.minutes(pass/60 + 5)
			t.medianAtMost(fmt.Sprintf("d. limit %v %%: seconds from cold to 90 %%", limit), pass, r.secondsTo(0.9))
		}
	}},
	{"e", func(seed uint64, t *results, c *coverages) {
		r := newRun(newWorld(seed, segments4000), Settings{Limit: 300}, 2000, c)
		r.minutes(20)
		t.note("e. limit 15 %, before the drift", 100*r.minutes(10).share())
		r.w.drift()
		t.atLeast("e. limit 15 %, 20 % of traffic redrawn, 1/4 of the good die: next 10 min", 75, 100*r.minutes(10).share())
	}},
	{"f", func(seed uint64, t *results, c *coverages) {
		for i, pass := range [3]float64{88, 82, 91} {
			r := newRun(newWorld(seed, segments4000), Settings{Limit: 300}, 2000, c)
			r.minutes(30)
			w := r.w
			switch i {
			case 0:
				w.die(w.some(0.3, w.good, w.fillsOf))
			case 1:
				bad := w.some(1, func(i int) bool { return !w.good(i) && w.leaves[i].rank < 200 }, w.one)
				w.each(bad[:8], w.makeGood)
			default:
				w.renew(w.some(0.25, w.any, w.one))
			}
			name := [3]string{"30 % of fills die", "8 bad segments become good", "1/4 of segments are new"}[i]
			t.atLeast("f. limit 15 %, "+name+": next 10 min", pass, 100*r.minutes(10).share())
		}
	}},
	{"g", func(seed uint64, t *results, c *coverages) {
		attacked := func(from, values int, warm float64) float64 {
			r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, c)
			r.minutes(warm)
			r.w.forged, r.w.forgedFrom, r.w.forgeds = 0.2, from, values
			r.minutes(15 - warm)
			return 100 * r.minutes(15).share()
		}
		t.atLeast("g. 20 % made-up segments: new ones", 90, attacked(0, 0, 15))
		t.atLeast("g. 20 % made-up segments: 20 000 again and again", 90, attacked(0, 20000, 15))
		t.note("g. new ones, from cold on, minutes 15 to 30", attacked(0, 0, 0))
		t.note("g. 20 000 again and again, from cold on, minutes 15 to 30", attacked(0, 20000, 0))
		t.note("g. 20 % new values of the last two keys", attacked(1, 0, 15))
		t.note("g. 20 % new values of the last key", attacked(2, 0, 15))
	}},
	{"h", func(seed uint64, t *results, c *coverages) {
		for i, name := range [2]string{"timeouts", "no-bids"} {
			r := newRun(newWorld(seed, segments4000), Settings{Limit: 300}, 2000, nil)
			r.minutes(15)
			r.ssp = timesOut + i
			r.minutes(10)
			r.ssp = responds
			t.atLeast("h. limit 15 %, after 10 min of "+name+": next 10 min", 91, 100*r.minutes(10).share())
		}
		r := newRun(newWorld(seed, segments4000), Settings{Limit: 800}, 2000, c)
		r.minutes(15)
		r.rate = func(float64) float64 { return 8000 }
		t.atLeast("h. load × 4 at once: next 10 min", 88, 100*r.minutes(10).share())
	}},
	{"i", func(seed uint64, t *results, c *coverages) {
		r := newRun(newWorld(seed, segments4000), Settings{Limit: 1000}, 0, c)
		r.rate = func(t float64) float64 { return 1000 - 500*math.Cos(2*math.Pi*t/3600) }
		r.minutes(60)
		sum, below := tally{}, 0.0
		for range 60 {
			m := r.minutes(1)
			sum.got, sum.oracle = sum.got+m.got, sum.oracle+m.oracle
			if r.rate(r.t) <= 900 && r.rate(r.t-60) <= 900 {
				below += m.dropped
			}
		}
		t.atLeast("i. day and night around the limit", 96, 100*sum.share())
		t.never("i. requests dropped below the limit", 0, below)
	}},
	{"k", func(seed uint64, t *results, c *coverages) {
		for i, pass := range [4]float64{12, 20, 30, 50} {
			maxLoss := [4]float64{0.5, 1, 2, 5}[i]
			r := newRun(newWorld(seed, segments4000), Settings{MaxLoss: maxLoss / 100}, 2000, c)
			r.minutes(30)
			saved := r.minutes(30)
			name := fmt.Sprintf("k. max_loss %v %%: ", maxLoss)
			t.never(name+"worst 10 min, % lost", maxLoss, 100*r.worst(600))
			t.atLeast(name+"% of requests saved", pass, 100*saved.dropped/saved.arrivals)
			t.note(name+"% of requests saved by the oracle", 100*r.w.savings(maxLoss/100))
		}
	}},
	{"l", func(seed uint64, t *results, c *coverages) {
		r := newRun(newWorld(seed, segments4000), Settings{MaxLoss: 0.01}, 2000, c)
		r.minutes(40)
		r.w.drift()
		t.atMost("l. max_loss 1 %: % lost in 5 min after drift e", 2, 100*r.minutes(5).loss())
		r.minutes(5)
		t.atMost("l. max_loss 1 %: % lost in minutes 10 to 20 after it", 1, 100*r.minutes(10).loss())
		r = newRun(newWorld(seed, segments4000), Settings{MaxLoss: 0.01}, 2000, c)
		r.minutes(40)
		r.w.forged = 0.2
		t.atMost("l. max_loss 1 %: % lost in 20 min of g", 2, 100*r.minutes(20).loss())
		r.minutes(10)
		t.atMost("l. max_loss 1 %: % lost in minutes 30 to 40 of g", 1, 100*r.minutes(10).loss())
	}},
	{"m", func(seed uint64, t *results, c *coverages) {
		for i, pass := range [3]float64{95, 94, 91} {
			n := [3]int{1, 4, 16}[i]
			r := newFleet(newWorld(seed, segments4000), Settings{Limit: 4000}, 20000, n, c)
			r.minutes(5)
			t.atLeast(fmt.Sprintf("m. %d replicas of 20 000/s: minutes 5 to 15", n), pass, 100*r.minutes(10).share())
			t.note(fmt.Sprintf("m. %d replicas: seconds to 90 %%", n), r.secondsTo(0.9))
		}
	}},
	{"n", func(seed uint64, t *results, c *coverages) {
		r := newFleet(newWorld(seed, segments4000), Settings{Limit: 400}, 2000, 4, c)
		r.leases = true
		r.minutes(15)
		before := r.sum
		for i := range 30 { // each minute another replica has most of the traffic
			for k, p := range r.replicas {
				p.share = map[bool]float64{true: 0.7, false: 0.1}[k == i%4]
			}
			r.minutes(1)
		}
		t.note("n. 4 replicas, leased shares that move, limit 20 % of 2 000/s", 100*r.sum.minus(before).share())
	}},
	{"o", func(seed uint64, t *results, c *coverages) {
		for _, seconds := range [2]float64{1, 5} {
			r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, c)
			r.latency = seconds
			r.minutes(15)
			t.note(fmt.Sprintf("o. outcomes %v s late, limit 10 %%", seconds), 100*r.minutes(15).share())
		}
	}},
	{"p", func(seed uint64, t *results, c *coverages) {
		for _, share := range [2]float64{0.05, 0.2} {
			r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, c)
			r.hedges = share
			r.minutes(15)
			m := r.minutes(15)
			t.note(fmt.Sprintf("p. %v %% of requests are hedged, limit 10 %%", 100*share), 100*m.share())
		}
	}},
	{"q", func(seed uint64, t *results, c *coverages) {
		// Good segments fill at most half of what they would fill of all traffic.
		fills := func(s Settings) (perMinute float64, r *run) {
			w := newWorld(seed, segments4000)
			r = newRun(w, s, 2000, nil)
			for _, l := range w.leaves {
				r.caps = append(r.caps, max(1, math.Floor(0.5*l.share*l.rate*2000*60)))
			}
			r.cap = make([]float64, len(r.caps))
			r.minutes(15)
			return r.minutes(15).got / 15, r
		}
		all, _ := fills(Settings{})
		for _, limit := range [2]float64{10, 40} {
			kept, r := fills(Settings{Limit: limit * 20})
			name := fmt.Sprintf("q. capped budgets, limit %v %%: ", limit)
			t.note(name+"% of fills lost", 100-100*kept/all)
			t.note(name+"% lost in the report", 100*r.replicas[0].shaper.Report(at(r.t-0.001)).TenMinutes.Estimate)
		}
	}},
	{"r", func(seed uint64, t *results, c *coverages) {
		r := newRun(newWorld(seed, segments4000), Settings{Limit: 100}, 0, c)
		r.rate = func(t float64) float64 { return 500 - 350*math.Cos(2*math.Pi*t/86400) }
		least := 1.0
		var sum tally
		for hour := range 24 {
			m := r.minutes(60)
			if hour > 0 {
				least = min(least, m.share())
				sum.got, sum.oracle = sum.got+m.got, sum.oracle+m.oracle
			}
			r.w.renew(r.w.some(0.03, r.w.any, r.w.one))
			r.w.redraw(r.w.some(0.02, r.w.any, r.w.traffic))
		}
		t.note("r. 24 h, 150 to 850/s, limit 100, 5 % new each hour", 100*sum.share())
		t.note("r. 24 h: the worst hour", 100*least)
	}},
	{"s", func(seed uint64, t *results, c *coverages) {
		r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, c)
		r.minutes(15)
		before := r.sum
		for range 9 {
			r.minutes(5)
			r.w.redraw(r.w.some(0.05, r.w.any, r.w.traffic))
		}
		t.note("s. 5 % of traffic redrawn every 5 min", 100*r.sum.minus(before).share())
	}},
	{"t", func(seed uint64, t *results, c *coverages) {
		t.note("t. loadtest/scenarios/shaping.yaml: 800 of 4 000/s, minutes 3 to 10", settled(newWorld(seed, segments4000), 800, 4000, 2, 8, c))
	}},
	{"u", forecastRow},
	{"v", func(seed uint64, t *results, c *coverages) {
		for _, perSecond := range []int{10, 100, 400} {
			t.note(fmt.Sprintf("v. 10 min of %d/s with a good segment's values: minutes until it passes again", perSecond), copied(seed, perSecond, 120))
		}
	}},
	{"w", func(seed uint64, t *results, c *coverages) {
		for _, rule := range rules {
			t.note("w. "+rule.rule+": with", rule.run(seed, ""))
			t.note("w. "+rule.rule+": without", rule.run(seed, rule.rule))
		}
	}},
}

// copied returns after how many minutes a good segment passes again, at most as many as given, once others have sent
// unfillable requests with its values for ten minutes. It has one or two requests a second of its own.
func copied(seed uint64, perSecond int, minutes float64) float64 {
	r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, nil)
	r.minutes(15)
	var best leaf
	for _, l := range r.w.leaves {
		if l.rank >= 100 && l.rank < 200 && l.rate > best.rate {
			best = l
		}
	}
	var seg Segment
	for k, v := range best.values {
		seg.set(k, v*0x9e3779b97f4a7c15)
	}
	p := r.replicas[0]
	for range 600 {
		for range perSecond {
			if d := p.shaper.Decide(&seg, p.tokens, at(r.t)); d.Kind != Dropped && p.tokens >= 1 {
				p.tokens--
				p.shaper.Learn(&seg, d, false, at(r.t))
			}
		}
		r.minutes(1. / 60)
	}
	began := r.t
	for p.shaper.Explain(&seg, at(r.t)).Chance < 1 && r.t < began+60*minutes {
		r.minutes(1. / 60)
	}
	return (r.t - began) / 60
}

// rules are those that row w switches off, each where it counts.
var rules = []struct {
	rule string
	run  func(seed uint64, without string) (share float64)
}{
	{"prefixes", afterCold}, {"ρ", underForgery}, {"reset", afterDrift}, {"half-life", afterDrift}, {"pause", afterNoBids},
	{"stricter on few tokens", steadyState}, {"laxer on many tokens", steadyState},
}

// steadyState returns the share of the oracle's fills in minutes 15 to 20.
func steadyState(seed uint64, without string) float64 {
	r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, nil)
	r.without = without
	r.minutes(15)
	return 100 * r.minutes(5).share()
}

// afterCold is steadyState in minutes 2 to 7, with many segments.
func afterCold(seed uint64, without string) float64 {
	r := newRun(newWorld(seed, segments20000), Settings{Limit: 400}, 2000, nil)
	r.without = without
	r.minutes(2)
	return 100 * r.minutes(5).share()
}

// underForgery is steadyState while a fifth of the traffic has made-up values.
func underForgery(seed uint64, without string) float64 {
	r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, nil)
	r.without, r.w.forged = without, 0.2
	r.minutes(15)
	return 100 * r.minutes(5).share()
}

// afterDrift returns the share of the oracle's fills in the 10 minutes after a drift.
func afterDrift(seed uint64, without string) float64 {
	r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, nil)
	r.without = without
	r.minutes(40)
	r.w.drift()
	return 100 * r.minutes(10).share()
}

// afterNoBids returns the share of the oracle's fills in the 10 minutes after 10 minutes of no-bids.
func afterNoBids(seed uint64, without string) float64 {
	r := newRun(newWorld(seed, segments4000), Settings{Limit: 200}, 2000, nil)
	r.without = without
	r.minutes(15)
	r.ssp = bidsNothing
	r.minutes(10)
	r.ssp = responds
	return 100 * r.minutes(10).share()
}

// TestSimulation simulates a shaper, and prints its results beside the pass marks. Rows n to w have no pass marks: they
// show what the other rows leave out, and in row w, what each rule of the shaper buys.
//
//	go test ./internal/ssp/shaper -run TestSimulation -v -timeout 2h -args -seeds 20
func TestSimulation(t *testing.T) {
	r := &results{cells: map[string]*cell{}}
	if *seeds == 0 {
		short(r)
	}
	var c coverages
	for i := range *seeds {
		for _, row := range rows {
			if *onlyRows != "" && !strings.Contains(*onlyRows, row.letter) {
				continue
			}
			began := time.Now()
			var own coverages
			row.run(*firstOne+uint64(i), r, &own)
			if own.ten.windows > 0 {
				r.note("j. bias in points, 10 min, row "+row.letter, 100*own.ten.bias/own.ten.windows)
			}
			c.ten.addAll(own.ten)
			c.thirty.addAll(own.thirty)
			c.maxLoss.addAll(own.maxLoss)
			t.Logf("row %s of world %d took %v", row.letter, *firstOne+uint64(i), time.Since(began).Round(time.Second))
		}
	}
	for _, j := range []struct {
		name string
		c    coverage
		pass float64
	}{{"10 min", c.ten, 93}, {"30 min", c.thirty, 93}, {"10 min with max_loss", c.maxLoss, 93}} {
		if j.c.windows > 0 {
			r.note("j. intervals, "+j.name, j.c.windows)
			r.atLeast("j. % of intervals that hold the truth, "+j.name, j.pass, 100*j.c.held/j.c.windows)
			r.never("j. bias in points, "+j.name, 1, 100*math.Abs(j.c.bias/j.c.windows))
		}
	}
	t.Logf("\n%v", r)
	for _, name := range r.order {
		if c := r.cells[name]; !c.passes() {
			middle, least, greatest := c.of()
			t.Errorf("%s: %.4g (%.4g to %.4g), want %s %v", name, middle, least, greatest, c.compare, c.bound)
		}
	}
}

// short simulates a few minutes in one world.
func short(t *results) {
	r := newRun(newWorld(1, segments50), Settings{Limit: 15}, 100, nil)
	r.minutes(5)
	t.atLeast("50 segments, 15 of 100/s", 80, 100*r.minutes(5).share())
	r = newRun(newWorld(1, segments4000), Settings{Limit: 800}, 2000, nil)
	r.minutes(2)
	t.atLeast("4 000 segments, 40 % of 2 000/s", 90, 100*r.minutes(1).share())
	r = newRun(newWorld(1, segments50), Settings{Limit: 100}, 500, nil)
	r.w.forged = 0.2
	r.minutes(5)
	t.atLeast("20 % made-up segments, limit 20 %", 98, 100*r.minutes(2).share())
	r = newRun(newWorld(1, segments50), Settings{Limit: 100}, 500, nil)
	r.minutes(3)
	r.ssp = bidsNothing
	r.minutes(3)
	r.ssp = responds
	t.atLeast("after 3 min of no-bids, limit 20 %", 85, 100*r.minutes(2).share())
	r = newRun(newWorld(1, segments50), Settings{MaxLoss: 0.05}, 500, nil)
	r.minutes(10)
	m := r.minutes(5)
	t.atLeast("max_loss 5 %: % of requests saved", 20, 100*m.dropped/m.arrivals)
	t.never("max_loss 5 %: % lost", 5, 100*m.loss())
}
