package ssp

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// model is an SSP with a number of workers and an unbounded queue. Its clients time out after a
// while, and the SSP does not notice. The model only computes, and reads no clock.
type model struct {
	rnd     *rand.Rand
	workers int           // 0 = unbounded
	median  time.Duration // of the time that a worker needs for a request, lognormal
	sigma   float64
	patient time.Duration
	rate    float64 // requests a second

	f      InFlight
	a      adaptive
	now    time.Duration
	free   []time.Duration // when each worker is idle, ascending
	flying []flight        // requests in flight, ordered by their end

	sent, shed, responded int
	latencies             time.Duration // sum of the requests with a response
	lowest, highest       int           // limit
}

func newModel(floor, maxInFlight int) *model {
	m := &model{rnd: rand.New(rand.NewPCG(7, 7)), median: 80 * msec, sigma: 0.49, patient: 500 * msec, rate: 500}
	m.f.SetLimit(maxInFlight)
	m.a.init(AdaptiveOptions{Enabled: true, Floor: floor}, maxInFlight, &m.f)
	return m
}

// run resets the counts and lets d pass.
func (m *model) run(d time.Duration) {
	m.sent, m.shed, m.responded, m.latencies = 0, 0, 0, 0
	m.lowest, m.highest = math.MaxInt, 0
	for end := m.now + d; ; {
		next := m.now + time.Duration(m.rnd.ExpFloat64()*1e9/m.rate)
		if next > end {
			m.land(end)
			m.now = end
			return
		}
		m.land(next)
		m.now = next
		if limit := m.f.Limit(); limit > 0 {
			m.lowest, m.highest = min(m.lowest, limit), max(m.highest, limit)
		}
		if m.f.Acquire() {
			m.sent++
			m.flying = insert(m.flying, flight{from: m.now, to: min(m.serve(), m.now+m.patient)}, byEnd)
		} else {
			m.shed++
		}
	}
}

// serve returns when the SSP responds to a request that is sent now.
func (m *model) serve() time.Duration {
	work := time.Duration(float64(m.median) * math.Exp(m.sigma*m.rnd.NormFloat64()))
	if m.workers == 0 {
		return m.now + work
	}
	from := m.now
	if len(m.free) >= m.workers {
		from = max(from, m.free[0])
		m.free = m.free[1:]
	}
	m.free = insert(m.free, from+work, cmp.Compare)
	return from + work
}

// land completes the requests that end before the given time.
func (m *model) land(before time.Duration) {
	for len(m.flying) > 0 && m.flying[0].to <= before {
		e := m.flying[0]
		m.flying = m.flying[1:]
		took := e.to - e.from
		if took < m.patient {
			m.responded++
			m.latencies += took
		}
		m.a.observe(e.to, 0, took)
		m.f.Release()
	}
}

func (m *model) shedRatio() float64 { return float64(m.shed) / float64(m.sent+m.shed) }

func (m *model) mean() time.Duration { return m.latencies / time.Duration(max(m.responded, 1)) }

type flight struct{ from, to time.Duration }

func byEnd(a, b flight) int { return cmp.Compare(a.to, b.to) }

// insert keeps list in its order.
func insert[T any](list []T, one T, order func(a, b T) int) []T {
	at, _ := slices.BinarySearchFunc(list, one, order)
	return slices.Insert(list, at, one)
}

func TestSteadySSPIsNotLimited(t *testing.T) {
	m := newModel(8, 0)
	for _, rate := range []float64{500, 50, 500, 900, 10} {
		m.rate = rate
		if m.run(90 * time.Second); m.shed > 0 {
			t.Errorf("%d of %d requests were shed at %v a second, although the SSP is healthy", m.shed, m.sent+m.shed, rate)
		}
	}
}

// An SSP works on 45 requests at once, and gets twice as many a second as it can serve. Without a
// limit its queue grows until no response is in time. With a limit it serves as many as it can, in
// less than twice the time, during the whole load.
func TestOverloadedSSPGetsWhatItCanProcess(t *testing.T) {
	const capacity = 500 // 45 workers, 90 ms on average
	for _, adapt := range []bool{false, true} {
		m := newModel(8, 0)
		m.a.enabled = adapt
		m.workers, m.rate = 45, capacity/2
		m.run(time.Minute)
		m.rate = 2 * capacity
		m.run(20 * time.Second)
		for minute := range 3 {
			m.run(time.Minute)
			goodput := float64(m.responded) / 60
			switch {
			case !adapt && goodput > capacity/10:
				t.Fatalf("the model tests nothing: %v requests a second get a response without a limit", goodput)
			case adapt && (goodput < 0.9*capacity || m.mean() > 180*msec):
				t.Errorf("minute %d: %.0f of %d get a response, in %v; limit %d to %d", minute, goodput, capacity, m.mean(), m.lowest, m.highest)
			}
		}
		base := time.Duration(m.a.base.Load())
		testsupport.True(t, !adapt || base <= 100*msec, "%v count as the SSP's own latency, which is 90ms", base)
	}
}

func TestSSPThatStaysSlowerGetsItsRequestsBack(t *testing.T) {
	m := newModel(8, 0)
	m.run(time.Minute)
	m.median *= 3
	m.run(15 * time.Second)
	testsupport.MustTrue(t, m.shed != 0 && m.lowest >= 8, "%d were shed, limit %d: want some, and no limit below the floor", m.shed, m.lowest)
	m.run(105 * time.Second)
	for range 3 {
		if m.run(time.Minute); m.shedRatio() > 0.001 {
			t.Errorf("%.3f are still shed two minutes later; limit %d to %d", m.shedRatio(), m.lowest, m.highest)
		}
	}
}

// After a probe, the SSP gets as many requests as before.
func TestProbeRestoresTheLimit(t *testing.T) {
	m := newModel(8, 0)
	m.f.SetLimit(20)
	m.a.probe, m.a.limitBefore = measuring, 40
	for range adaptiveMinSamples {
		m.a.observe(adaptiveWindow, 0, 80*msec)
	}
	got := m.f.Limit()
	testsupport.True(t, got == 40 && m.a.probe == notProbing, "the limit is %d after the probe, want 40", got)
}

func TestAdaptiveLimitStaysWithinFloorAndMaxInFlight(t *testing.T) {
	for _, c := range []struct{ floor, max, lowest, highest int }{
		{8, 60, 8, 60},
		{20, 60, 20, 60},
		{1, 0, 1, math.MaxInt},
		{100, 30, 30, 30}, // max_in_flight is the harder limit
	} {
		m := newModel(c.floor, c.max)
		lowest, highest := math.MaxInt, 0
		for i := range 40 {
			m.median = []time.Duration{80 * msec, 800 * msec, 20 * msec, 160 * msec}[i%4]
			m.run(15 * time.Second)
			lowest, highest = min(lowest, m.lowest), max(highest, m.highest)
		}
		testsupport.True(t, lowest >= c.lowest && highest <= c.highest, "floor %d, max_in_flight %d: the limit was %d to %d", c.floor, c.max, lowest, highest)
		if c.lowest < c.highest && (lowest > 2*c.lowest+2 || c.max > 0 && highest != c.max) {
			t.Errorf("floor %d, max_in_flight %d: the limit was %d to %d, and never at its ends", c.floor, c.max, lowest, highest)
		}
	}
}

func TestUnusedAdaptiveLimitDoesNotGrow(t *testing.T) {
	m := newModel(8, 0)
	m.rate = 100 // 9 in flight
	m.run(10 * time.Second)
	m.f.SetLimit(100) // simulates an SSP that was slow
	m.run(5 * time.Minute)
	testsupport.True(t, m.lowest == 100 && m.highest == 100, "the limit was %d to %d with a tenth of it in use", m.lowest, m.highest)
	m.rate = 1000
	m.run(10 * time.Second)
	testsupport.True(t, m.highest > 100 && m.shedRatio() <= 0.05, "the limit rose to %d when it was used, and %.3f were shed", m.highest, m.shedRatio())
}

func TestAdaptiveLimitFallsFromTheUsedPart(t *testing.T) {
	m := newModel(8, 10000)
	m.run(10 * time.Second) // 45 in flight, far from 10000
	m.median *= 3
	m.run(1500 * msec)
	testsupport.AtMost(t, m.f.Limit(), 150, "the limit is still %d after 1.5 s")
}

func TestErrorOverTheAdaptiveLimitNamesIt(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		slow := 20 * msec
		p := &fakePool{steps: []step{func(ex *upstream.Exchange) error { return after(slow, fill())(ex) }}}
		c := newClient(t, p, func(o *Options) { o.Adaptive = AdaptiveOptions{Enabled: true, Floor: 5}; o.MaxInFlight = 100 })
		results := make(chan result, 20)
		for i := range 200 {
			if i == 100 {
				slow = 280 * msec
			}
			for range 20 {
				go func() { results <- c.get() }()
			}
			for range 20 {
				if r := <-results; r.outcome != upstream.Fill {
					r.want(upstream.Overloaded).wantDetail("of", "instead of 20ms", "adaptive.floor (5)")
				}
			}
		}
		testsupport.Equal(t, c.ssp.Snapshot().ConcurrencyLimit, 5, "the limit is %d, want the floor")
		testsupport.Equal(t, c.ssp.MaxInFlight(), 100, "the error says that max_in_flight is %d")
		c.wantIdle()
	})
}
