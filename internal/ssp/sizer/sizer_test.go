package sizer

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// epoch is when simulations begin.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// course feeds a Sizer with a constant load.
type course struct {
	*Sizer
	now  time.Time
	x    Sample
	rate float64 // arrivals per second
	hold float64 // seconds
	// capacity bounds how many requests per second end in time; 0 means that all places work.
	capacity float64
}

func newCourse(l Limits, begin int) *course {
	return &course{Sizer: New(l, begin, func() float64 { return 0.5 }), now: epoch, rate: 1000, hold: 0.1}
}

// tick lets one interval pass, in which the places serve as many requests as they can.
func (c *course) tick() (Decision, bool) {
	c.now = c.now.Add(Interval)
	arrived := c.rate * Interval.Seconds()
	served := min(arrived, float64(c.Limit())/c.hold*Interval.Seconds())
	good := served
	if c.capacity > 0 {
		good = min(served, c.capacity*Interval.Seconds())
	}
	c.x.Arrivals += uint64(arrived)
	c.x.Waits += uint64(arrived - served)
	c.x.Releases += uint64(served)
	c.x.Held += time.Duration(served * c.hold * float64(time.Second))
	c.x.Successes += uint64(good)
	c.x.InUse = int(min(float64(c.Limit()), c.rate*c.hold))
	return c.Tick(c.now, c.x)
}

// until passes intervals until a decision, and fails after a time.
func (c *course) until(t *testing.T, most time.Duration) Decision {
	t.Helper()
	for range most / Interval {
		if d, ok := c.tick(); ok {
			return d
		}
	}
	t.Fatalf("no decision within %v", most)
	return Decision{}
}

func TestDecisionsNameTheirInputs(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000}, 50)
	d := c.until(t, 2*time.Second)
	testsupport.True(t, d.Kind == Grown && d.From == 50 && d.To == 64 && d.Need >= 100 && d.Waiting >= 0.4 && d.Used == 50 && d.Goodput >= 450, "the first decision is %+v", d)
	kinds := map[Kind]int{}
	for range 300 {
		if d, ok := c.tick(); ok {
			kinds[d.Kind]++
		}
	}
	testsupport.True(t, c.Limit() >= 100 && c.Limit() <= 130 && kinds[Verified] != 0 && kinds[Reverted] <= 0, "the limit is %d after %v", c.Limit(), kinds)
}

func TestGrowthThatDoesNotHelpIsTakenBackForLongerEachTime(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000}, 80)
	c.rate, c.capacity = 2000, 700
	var holds []time.Duration
	for len(holds) < 4 {
		d := c.until(t, 3*time.Minute)
		testsupport.MustTrue(t, d.Kind != Verified, "a growth without goodput counts as useful: %+v", d)
		if d.Kind == Reverted {
			testsupport.Equal(t, d.To, 80, "the limit went back to %d")
			holds = append(holds, d.Hold)
		}
		testsupport.True(t, d.Kind != Grown || len(holds) <= 0 || c.HeldFor(c.now) <= 0, "the limit grew in a hold")
	}
	for i, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second} {
		testsupport.Equal(t, holds[i], want, "hold %[2]d is %[1]v", i+1)
	}
}

func TestNothingChangesWhileRequestsAreHeldBack(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000}, 50)
	c.x.Frozen = true
	for range 1000 {
		d, ok := c.tick()
		testsupport.MustTrue(t, !ok, "a decision: %+v", d)
	}
	c.x.Frozen = false
	d := c.until(t, 2*time.Second)
	testsupport.True(t, d.Kind == Grown, "after it: %+v", d)
}

// A growth cannot be judged while requests are held back, so a growth that has not been judged yet is reverted.
func TestAGrowthWithoutAVerdictIsTakenBackWhenRequestsAreHeldBack(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000}, 100)
	c.rate = 2000
	grown := c.until(t, 2*time.Second)
	testsupport.MustTrue(t, grown.Kind == Grown && grown.To == 125, "the first decision is %+v", grown)
	c.x.Frozen = true
	d, ok := c.tick()
	testsupport.True(t, ok && d.Kind == Reverted && d.From == 125 && d.To == 100 && c.Limit() == 100, "when requests are held back: %+v, %v", d, ok)
	d, ok = c.tick()
	testsupport.True(t, !ok, "a second decision: %+v", d)
	c.x.Frozen = false
	d = c.until(t, 2*time.Second)
	testsupport.True(t, d.Kind == Grown, "after it: %+v", d)
}

func TestLimitShrinksToTheNeedOfFifteenMinutes(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000}, 400)
	d := c.until(t, 20*time.Minute)
	testsupport.True(t, d.Kind == Shrunk && d.From == 400 && d.To >= 100 && d.To <= 130 && c.now.Sub(epoch) >= 15*time.Minute, "after %v: %+v", c.now.Sub(epoch), d)
	c.rate = 0
	for range 40 * time.Minute / Interval {
		c.tick()
	}
	testsupport.Equal(t, c.Limit(), 16, "without load the limit is %d")
}

func TestNewLimitsApplyAtOnceAndEndAVerdict(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000}, 100)
	c.rate = 2000
	c.until(t, 2*time.Second)
	c.SetLimits(Limits{Min: 16, Max: 60})
	testsupport.True(t, c.Limit() == 60 && c.anchor.places == 0, "the limit is %d", c.Limit())
	c.SetLimits(Limits{Min: 90, Max: 1000})
	testsupport.Equal(t, c.Limit(), 90, "the limit is %d")
}

func TestDryRunFollowsTheNeed(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000, DryRun: true}, 1000)
	d := c.until(t, 20*time.Minute)
	testsupport.MustTrue(t, d.Kind == Shrunk && d.To >= 100 && d.To <= 130, "the first decision is %+v", d)
	c.rate = 3000
	if d = c.until(t, 5*time.Second); d.Kind != Grown || d.To <= 130 {
		t.Errorf("with more load: %+v", d)
	}
}

func TestTickAllocatesNothing(t *testing.T) {
	c := newCourse(Limits{Min: 16, Max: 1000}, 50)
	testsupport.Equal(t, testing.AllocsPerRun(2000, func() { c.tick() }), 0, "%v allocations")
}
