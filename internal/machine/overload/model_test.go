package overload

import (
	"math"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// model is an adbuffer with one core and its clients, in steps of a millisecond. Requests wait in a
// queue for CPU. Each connection has one request at a time.
type model struct {
	controller
	offered     [Priorities]float64 // requests in a step
	connections float64
	stolen      float64 // share of the core that other processes take

	step    int
	queue   float64       // work that waits for CPU
	paused  [2000]float64 // connections whose pause ends in a step, by the step
	asleep  float64       // all of them
	seen    windowLoad    // in the window
	served  float64       // in time
	refused [Priorities]float64
	passed  [Priorities]float64
}

const (
	modelCapacity = 40.0      // forwarded requests in a step
	refusingCosts = 1.0 / 3.0 // of forwarding
	modelDeadline = 300.0     // ms
	modelTarget   = 5.0       // ms
)

func newModel(connections float64) model {
	m := model{controller: newController(), connections: connections}
	m.cores = 1
	return m
}

// run runs the model for some windows of 100 ms.
func (m *model) run(windows int) {
	for range windows {
		least := 1e9
		for range 100 {
			least = min(least, m.tick())
		}
		m.observe(least/modelTarget, 100*time.Millisecond, &m.seen, false)
		m.seen = windowLoad{}
	}
}

// tick runs a step, and returns the lag.
func (m *model) tick() (lag float64) {
	m.step++
	at := m.step % len(m.paused)
	m.asleep -= m.paused[at]
	m.paused[at] = 0
	all, work := 0.0, 0.0
	for _, n := range m.offered {
		all += n
	}
	fits := min(1, max(0, m.connections-m.asleep-m.queue)/all)
	shares := m.sharesByPriority()
	capacity := modelCapacity * (1 - m.stolen)
	for p, n := range m.offered {
		n *= fits
		refused := n * shares[p]
		m.seen.arrived[p] += n
		m.seen.refused += refused
		m.refused[p] += refused
		m.passed[p] += n - refused
		work += n - refused + refused*refusingCosts
		if 2*m.queue/capacity < modelDeadline { // a request waits twice
			m.served += n - refused
		}
		for i := range 5 { // the pauses differ
			end := (m.step + max(1, int(m.pause.Milliseconds())*(2+i)/4)) % len(m.paused)
			m.paused[end] += refused / 5
		}
		m.asleep += refused
	}
	m.queue = max(0, m.queue+work-capacity)
	return m.queue / capacity
}

// Without the proportional part of the rule, and without a pause that grows, goodput falls below half.
func TestGoodputStaysUnderOverload(t *testing.T) {
	for _, c := range []struct{ load, connections, least float64 }{
		{1.2, 200, 0.9}, {1.2, 1000, 0.9}, {1.2, 4000, 0.85}, {2, 200, 0.9}, {2, 1000, 0.9}, {2, 4000, 0.8}, {4, 200, 0.9}, {4, 1000, 0.9}, {4, 4000, 0.75},
	} {
		m := newModel(c.connections)
		m.offered[Normal], m.offered[Critical] = 0.9*c.load*modelCapacity, 0.1*c.load*modelCapacity
		const windows = 150
		m.run(windows)
		goodput := m.served / windows / 100 / modelCapacity
		critical := m.refused[Critical] / (m.refused[Critical] + m.passed[Critical])
		t.Logf("%v times the capacity over %v connections: goodput %.2f, share %.2f, pause %v, critical refused %.4f", c.load, c.connections, goodput, m.shareToRefuse(), m.pause, critical)
		if goodput < c.least || critical > 0.01 {
			t.Errorf("%v times the capacity over %v connections: goodput %.2f, want %.2f; %.4f of the critical requests are refused", c.load, c.connections, goodput, c.least, critical)
		}
		m.offered[Normal], m.offered[Critical] = 0.5*modelCapacity, 0
		m.run(60)
		was := m.refused
		m.run(20)
		testsupport.True(t, m.refused == was, "%v times the capacity over %v connections: requests are refused 6 s after the overload", c.load, c.connections)
	}
}

// A load of 70 % of the core, while another process takes half of the core for 200 ms of each 600 ms.
func TestANoisyNeighbourMakesNothingRefused(t *testing.T) {
	m := newModel(10_000)
	m.offered[Normal], m.offered[Sheddable] = 0.4*modelCapacity, 0.3*modelCapacity
	for range 200 {
		m.stolen = 0.5
		m.run(2)
		m.stolen = 0
		m.run(4)
	}
	testsupport.Equal(t, m.refused, [Priorities]float64{}, "%v requests are refused")
}

// Sheddable requests are refused first, all of them before a normal request, and critical requests last.
func TestPrioritiesAreRefusedInOrder(t *testing.T) {
	var c controller
	c.arrivals = [Priorities]float64{Normal: 50, Sheddable: 30, Critical: 20}
	for _, row := range []struct {
		may                         float64
		sheddable, normal, critical float64
	}{{maxAdmitted, 0, 0, 0}, {1, 0, 0, 0}, {0.85, 0.5, 0, 0}, {0.7, 1, 0, 0}, {0.45, 1, 0.5, 0}, {0.1, 1, 1, 0.5}, {0, 1, 1, 1}} {
		c.admitted = row.may
		got := c.sharesByPriority()
		for p, want := range map[Priority]float64{Sheddable: row.sheddable, Normal: row.normal, Critical: row.critical} {
			testsupport.True(t, math.Abs(got[p]-want) <= 1e-9, "%v may pass: %v of %v is refused, want %v", row.may, got[p], p, want)
		}
	}
}

// A sudden lag refuses no critical request, although only half of the usual requests pass at first.
func TestASuddenLagRefusesNothingCritical(t *testing.T) {
	c := controller{admitted: 0.3, transientShare: 0.5}
	c.arrivals = [Priorities]float64{Normal: 50, Sheddable: 30, Critical: 20}
	testsupport.Equal(t, c.sharesByPriority(), [Priorities]float64{Normal: 1, Sheddable: 1}, "%v are refused")
	c.admitted = 0.1
	testsupport.Equal(t, c.sharesByPriority()[Critical], 0.5, "in the long run %v of the critical ones are refused")
}

// A quarter more than may be served, or a lag of ten targets, is needed before anything is refused, also after an
// overload.
func TestALagOfLessThanTenTargetsRefusesNothingAtOnce(t *testing.T) {
	l := &windowLoad{arrived: [Priorities]float64{100, 0, 0}}
	recovered := newController()
	for range 20 {
		recovered.observe(100, window, l, false)
	}
	for range 100 {
		recovered.observe(0, window, l, false)
	}
	for _, c := range []controller{newController(), recovered} {
		short, long := c, c
		short.observe(9.9, window, l, false)
		long.observe(10.1, window, l, false)
		testsupport.True(t, short.shareToRefuse() == 0 && long.shareToRefuse() > 0 && long.shareToRefuse() < 0.01, "after a lag of 9.9 targets %v are refused, after 10.1 %v", short.shareToRefuse(), long.shareToRefuse())
	}
}

// Under a long lag a window takes a second. The pause must grow as fast as in windows of 100 ms.
func TestAPauseGrowsWithTheTimeOfItsWindow(t *testing.T) {
	l := &windowLoad{refused: 100}
	l.arrived[Normal] = 100
	short, long := newController(), newController()
	short.cores, long.cores = 0.01, 0.01
	for range 5 {
		short.observe(200, 100*time.Millisecond, l, false)
	}
	long.observe(200, time.Second, l, false)
	testsupport.True(t, short.pause == 320*time.Millisecond && long.pause == short.pause, "five windows of 100 ms make the pause %v, one of a second %v", short.pause, long.pause)
	long.observe(0, 100*time.Millisecond, &windowLoad{}, false)
	testsupport.Equal(t, long.pause, 288*time.Millisecond, "a window without refusals makes it %v")
}
