package shaper

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

var t0 = time.Unix(1_800_000_000, 0)

// at returns the moment some seconds after the shaper began.
func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

// segment returns the segment with the given values.
func segment(values ...string) *Segment {
	var s *Shaper // has no part in hashes
	var seg Segment
	for i, v := range values {
		s.Hash(i, &seg, []byte(v))
	}
	return &seg
}

// near fails the test if got differs from want by more than a thousandth of want.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.001*max(math.Abs(want), 1e-9) || math.IsNaN(got) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// send decides about n requests of the segment in the given second, and teaches their outcomes: fills of n are fills.
func send(s *Shaper, seg *Segment, n, fills int, second float64) {
	for i := range n {
		if d := s.Decide(seg, 0, at(second)); d.Kind != Dropped {
			s.Learn(seg, d, i*fills/n != (i+1)*fills/n, at(second))
		}
	}
}

func TestHashesDependOnAllCoarserValues(t *testing.T) {
	ab, ba := segment("a", "b"), segment("b", "a")
	if ab[0] == ba[0] || ab[1] == ba[1] {
		t.Error("other values, or the same in another order, have the same hash")
	}
	if again := segment("a", "c"); again[0] != ab[0] || again[1] == ab[1] {
		t.Error("the hash of a prefix depends on more or less than its values")
	}
	if empty := segment("a", ""); empty[1] == ab[1] || empty[1] == ab[0] {
		t.Error("an empty value is not a value")
	}
}

func TestTheTableHasAFixedSize(t *testing.T) {
	var tb table
	if n := unsafe.Sizeof(tb.sets); n != 192<<10 {
		t.Errorf("the table has %d bytes, want 192 KiB", n)
	}
}

func TestANewPrefixTakesTheEntryOfTheLeastSeenOne(t *testing.T) {
	tb := new(table)
	for i := range uint64(8) { // all in set 5
		tb.see(5 + 1024*(i+1))
		for range i {
			tb.see(5 + 1024*(i+1))
		}
	}
	tb.see(5 + 1024) // now the second one, seen twice, is among the least seen
	tb.see(5 + 1024)
	tb.find(5 + 1024*3).fills = 7
	if tb.see(5+1024*9) != nil || tb.find(5+1024*2) != nil || tb.used != 8 {
		t.Error("the least seen prefix kept its entry")
	}
	if tb.find(5+1024*3).fills != 7 || tb.find(5+1024*9).seen != 1 {
		t.Error("another entry changed")
	}
}

func TestCountsFadeToZeroAndSightsToTheFloor(t *testing.T) {
	tb := new(table)
	tb.see(5)
	e := tb.find(5)
	e.sent, e.fills = 8, 1
	for _, want := range []entry{
		{sent: 8 * 0x1p-50, fills: 0x1p-50, seen: 0x1p-50},
		{sent: 8 * 0x1p-100, seen: 1e-30}, // 1e-30 is between 2^-100 and 2^-99
		{seen: 1e-30},
	} {
		want.tag = 5
		if tb.fade(0x1p-50, 0x1p-50); *e != want {
			t.Errorf("the entry is %+v, want %+v", *e, want)
		}
	}
}

func TestBucketsAreQuarterOctaves(t *testing.T) {
	for _, c := range []struct {
		score float64
		want  int
	}{
		{0, 0}, {1e-300, 0}, {0x1p-17, 0}, {0x1p-16, 0}, {0x1.31p-16, 1}, {0x1.6bp-16, 2}, {0x1.afp-16, 3},
		{0x1p-15, 4}, {0.001, 24}, {0.1, 50}, {0.5, 60}, {0.84, 62}, {0.85, 63}, {0.999, 63}, {1, 63},
	} {
		if got := bucketOf(c.score); got != c.want {
			t.Errorf("the score %v is in bucket %d, want %d", c.score, got, c.want)
		}
	}
}

func TestScoreUsesCoarserPrefixesAsPrior(t *testing.T) {
	s := New(Settings{Keys: 2}, 1, t0)
	seg, other := segment("a", "b"), segment("a", "c")
	near(t, "the score of a shaper that knows nothing", s.Decide(seg, 0, t0).Score, 0.01)
	s.Decide(seg, 0, t0) // the second key gets its entry
	d := s.Decide(seg, 0, t0)
	s.Learn(seg, d, true, t0)
	s.Learn(seg, d, false, t0)
	// The first outcome, a fill, found both prefixes without any outcome, so it taught ρ of both keys: a fill where
	// 0.01 was expected, beside the 1 and 1 with which ρ begins, is ρ = 2/1.01. At the second outcome the SSP's rate
	// was 1.01/2, and ρ times that is limited to 1. With a prior of 1, one outcome outweighs the prior, so this outcome
	// left ρ alone. Afterwards the SSP's rate is 1.01/3, that of one fill in two requests.
	e := s.Explain(seg, t0)
	near(t, "ρ of the first key", e.Prefixes[0].Worth, 2/1.01)
	near(t, "N", e.Prefixes[0].Sent, 2)
	near(t, "F", e.Prefixes[0].Fills, 1)
	prior := 2 / 1.01 * 1.01 / 3
	p1 := 1.5 / (2 + 0.5/prior)
	near(t, "p of the first key", e.Prefixes[0].Mean, p1)
	prior = min(1, 2/1.01*p1)
	near(t, "p of the second key", e.Prefixes[1].Mean, 1.5/(2+0.5/prior))
	near(t, "the score", e.Score, e.Prefixes[1].Mean)
	e = s.Explain(other, t0)
	if e.Prefixes[1].Known {
		t.Error("a prefix that was never seen is known")
	}
	near(t, "the score of an unknown child", e.Score, min(1, e.Prefixes[1].Worth*p1))
	before := s.model.table
	s.Explain(segment("x", "y"), t0)
	if s.model.table != before || s.ledger.requests != [3]uint64{3, 0, 0} {
		t.Error("an explanation is counted")
	}
}

func TestTheWorthOfYoungPrefixesForgets(t *testing.T) {
	w := worth{1, 1, 1}
	for range 98 {
		w.learn(true, 0.5)
	}
	if w != (worth{99, 50, 1.98}) {
		t.Errorf("50 expected fills: %+v", w)
	}
	w.learn(true, 0.5)
	near(t, "the fills above 50 expected ones", w.fills, 50)
	near(t, "the expected fills above 50", w.expected, 25.25)
	w.learn(false, 0.75)
	near(t, "ρ after that", w.ratio, 50.0/26)
}

func TestAScoreIsAtMostOne(t *testing.T) {
	s := New(Settings{Keys: 4}, 1, t0)
	for i := range 200 {
		seg := segment("a", string(rune('a'+i)), "c", "d")
		d := s.Decide(seg, 0, t0)
		if d.Score > 1 {
			t.Fatalf("the score is %v", d.Score)
		}
		s.Learn(seg, d, true, t0)
	}
}

func TestHalfLives(t *testing.T) {
	s := New(Settings{Keys: 1}, 1, t0)
	seg := segment("a")
	send(s, seg, 800, 400, 0)
	e := s.model.table.find(seg[0])
	seen := float64(e.seen)
	s.Report(at(600))
	near(t, "N after ten minutes, of which one second taught", float64(e.sent), 800*math.Exp2(-1/1800.0))
	near(t, "A after ten minutes", float64(e.seen), seen/2)
	for i := range 1800 {
		s.learning.taught = true
		s.advance(at(float64(601 + i)))
	}
	near(t, "F after half an hour that taught", float64(e.fills), 200)
	near(t, "the SSP's fills after half an hour that taught", s.model.fills, 200)
}

func TestAPrefixThatStopsToFillBeginsAgain(t *testing.T) {
	s := New(Settings{Keys: 1}, 1, t0)
	seg, other := segment("a"), segment("b")
	send(s, other, 10000, 5000, 0) // keeps the SSP from being at fault
	send(s, seg, 100, 50, 0)
	e := s.model.table.find(seg[0])
	n := 0
	for ; e.fills > 0 && n < 1000; n++ {
		if n%10 == 0 {
			send(s, other, 1, 1, 0)
		}
		send(s, seg, 1, 0, 0)
	}
	// Σ 50/(100+n) = 8 at n = 100(e^(8/50) - 1) = 17.3.
	if n != 18 || e.sent != 0 || e.run != 0 {
		t.Errorf("after %d no-bids the entry is %+v, want 18 no-bids and nothing known", n, *e)
	}
}

func TestAnSSPWithoutFillsTeachesNothing(t *testing.T) {
	s := New(Settings{Keys: 1}, 1, t0)
	seg := segment("a")
	send(s, seg, 1000, 500, 0)
	if r := s.Report(t0); r.State != Learning || r.Paused {
		t.Errorf("the state is %v", r.State)
	}
	send(s, seg, 1000, 0, 1)
	sent := s.model.sent
	// The n-th no-bid adds the SSP's rate at that moment, 500/(1000+n), to the fills that failed to come. Their sum
	// reaches 20, where learning pauses, at n = 1000(e^0.04 - 1) = 40.8: 41 no-bids teach.
	if r := s.Report(at(1)); r.State != Paused || !r.Paused || sent != 1041 {
		t.Errorf("the state is %v after %v outcomes, want paused after 1041", r.State, sent)
	}
	send(s, seg, 1, 1, 2)
	if r := s.Report(at(2)); r.State != Learning || s.model.sent != sent+1 {
		t.Errorf("after a fill the state is %v", r.State)
	}
}

func TestCountsAboveTheCeilingStillFollow(t *testing.T) {
	e := entry{sent: 1 << 23, fills: 1 << 22}
	for range 1000 {
		e.learn(false, 0)
	}
	near(t, "the rate", float64(e.fills/e.sent), 0.5*4194304/(4194304+1000))
}

// steady returns a shaper that knows the rates of the segments a, b, c and so on.
func steady(settings Settings, scores ...float64) *Shaper {
	settings.Keys = 1
	s := New(settings, 1, t0)
	for i, p := range scores {
		seg := segment(string(rune('a' + i)))
		s.model.table.see(seg[0])
		e := s.model.table.find(seg[0])
		e.sent, e.fills = 1e6, float32(p*1e6)
	}
	return s
}

// arrive lets the shaper decide about n requests a second of each of the first segments a, b, c and so on, for the given
// number of seconds. It returns how often each Kind was decided in the last second, by segment.
func arrive(s *Shaper, segments, n, seconds int, tokens float64) (last [][3]int) {
	for sec := range seconds {
		last = make([][3]int, segments)
		for i := range n {
			for k := range segments {
				d := s.Decide(segment(string(rune('a'+k))), tokens, at(float64(sec)+float64(i)/float64(n)))
				last[k][d.would]++
			}
		}
	}
	return last
}

func TestTheBestScoresPass(t *testing.T) {
	// 300 requests a second of each of three segments. 97 % of the limit of 400 pass: 300 + 88 of the second.
	settings := Settings{Limit: 400, Burst: 40, Explore: 0.03}
	s := steady(settings, 0.001, 0.01, 0.1)
	got := arrive(s, 3, 300, 10, 20)
	if got[2] != [3]int{300, 0, 0} {
		t.Errorf("the best segment: %v", got[2])
	}
	if n := got[1][Passed]; n < 60 || n > 120 {
		t.Errorf("%d requests of the segment at the edge passed, want about 88", n)
	}
	if got[0][Passed] != 0 {
		t.Errorf("the worst segment: %v", got[0])
	}
	if n := got[0][Explored] + got[1][Explored]; n < 2 || n > 30 {
		t.Errorf("%d requests were explored, want about 12", n)
	}
	r := s.Report(at(10))
	near(t, "the probability of exploration", r.Explore, 0.03/0.97*(388.0/900)/(1-388.0/900))
	if r.Threshold < 0.008 || r.Threshold > 0.012 {
		t.Errorf("the threshold is %v, want about 0.01", r.Threshold)
	}
	near(t, "the seconds of the window", r.Hour.Time.Seconds(), 11)
	near(t, "the arrivals", r.Hour.Arrivals, 9000)
	near(t, "the arrivals of the best range", r.Ranges[6].Arrivals, 3000)
	near(t, "the lower end of that range", r.Ranges[6].From, 1.0/16)
}

func TestAllPassWhileTheRateIsBelowTheLimit(t *testing.T) {
	for _, c := range []struct {
		limit   float64
		dropped bool
	}{{0, false}, {920, false}, {910, true}} {
		s := steady(Settings{Limit: c.limit, Burst: 100, Explore: 0.03}, 0.001, 0.01, 0.1)
		got := arrive(s, 3, 300, 5, 50)
		if dropped := got[0][Passed] < 300; dropped != c.dropped {
			t.Errorf("with a limit of %v and 900 requests a second: %v", c.limit, got)
		}
	}
}

func TestArrivalsFadeInSecondsWithoutRequests(t *testing.T) {
	a := arrivals{second: 100}
	a.counts[7] = 100
	a.advance(1)
	near(t, "the rate after a second with 100 requests", a.rate, 100)
	near(t, "the count after it", a.counts[7], 80)
	for range 20 {
		a.add(7)
	}
	a.advance(4) // three seconds without requests
	near(t, "the rate after three seconds without requests", a.rate, 100*0.512*0.2)
	near(t, "the count after them", a.counts[7], 100*0.4096)
}

func TestTokensLeftMoveTheThreshold(t *testing.T) {
	for _, c := range []struct {
		name    string
		tokens  float64
		burst   int
		maxLoss float64
		dry     bool
		want    [4]float64 // chance of 0.001, 0.01, 0.015, 0.1
	}{
		{"half", 20, 40, 0, false, [4]float64{0, 0.5, 1, 1}},
		{"a quarter", 10, 40, 0, false, [4]float64{0, 0.5, 1, 1}},
		{"few", 9.9, 40, 0, false, [4]float64{0, 0, 0, 1}},
		{"few, in a dry run", 0, 40, 0, true, [4]float64{0, 0.5, 1, 1}},
		{"many", 30, 40, 0, false, [4]float64{1, 1, 1, 1}},
		{"many of a small burst", 9, 9, 0, false, [4]float64{0, 0.5, 1, 1}},
		{"many, with max_loss", 40, 40, 0.01, false, [4]float64{0, 0.5, 1, 1}},
	} {
		s := New(Settings{Limit: 100, Burst: c.burst, MaxLoss: c.maxLoss, DryRun: c.dry, Keys: 1}, 1, t0)
		s.threshold = threshold{edge: bucketOf(0.01), pass: 0.5, share: 0.5}
		for i, score := range [4]float64{0.001, 0.01, 0.015, 0.1} {
			if got := s.chance(bucketOf(score), c.tokens); got != c.want[i] {
				t.Errorf("%s: the score %v passes with %v, want %v", c.name, score, got, c.want[i])
			}
		}
	}
	s := New(Settings{Limit: 100, Burst: 40, Keys: 1}, 1, t0)
	if s.chance(0, 0) != 1 {
		t.Error("few tokens drop although the rate is below the limit")
	}
}

func TestASharedLimitOfNothingDropsAll(t *testing.T) {
	s := steady(Settings{Limit: 900, Burst: 90, Explore: 0.03}, 0.001, 0.1)
	s.SetLimit(0)
	if got := arrive(s, 2, 300, 3, 50); got[0][Dropped] != 300 || got[1][Dropped] != 300 {
		t.Errorf("decisions: %v", got)
	}
	s.SetLimit(900)
	s.Report(at(3))
	if got := s.Report(at(4)); got.Threshold != 0 {
		t.Errorf("the threshold is %v", got.Threshold)
	}
}

// Values of the interval from Fay and Feuer's formula; with weights of 1 it is that of a Poisson count: 10 counts are
// 4.80 to 18.39.
func TestInterval(t *testing.T) {
	for _, c := range []struct{ sum, variance, weight, low, high float64 }{
		{0, 0, 1, 0, 3.670},
		{10, 10, 1, 4.788, 18.39},
		{100, 100, 1, 81.36, 121.63},
		{100, 1000, 10, 47.88, 183.9},
		{0, 0, 0, 0, 0},
	} {
		low, high := interval(c.sum, c.variance, c.weight)
		near(t, "the lower bound", low, c.low)
		near(t, "the upper bound", high, c.high)
	}
}

func TestMaxLossSetsTheHighestThresholdThatIsSafe(t *testing.T) {
	var f fillsByScore
	var a arrivals
	a.counts[10], a.counts[20], a.counts[30], a.counts[40] = 500, 300, 100, 100
	for range 10 {
		f.add(10, 1)
	}
	for range 90 {
		f.add(20, 1)
	}
	for range 900 {
		f.add(40, 1)
	}
	weight := func(float64) float64 { return 1 }
	// 21.44 fills may be below bucket 11, and 128.8 below bucket 21.
	if got := f.threshold(0.001, &a, weight); got != passAll {
		t.Errorf("1 of 1000 may be lost, but the threshold is %+v", got)
	}
	got := f.threshold(0.07, &a, weight)
	near(t, "the dropped share of the edge bucket", 1-got.pass, (70-21.443)/(128.818-21.443))
	near(t, "the share that passes", got.share, 0.5-0.3*(1-got.pass))
	if got.edge != 20 {
		t.Errorf("the threshold is %+v", got)
	}
	if got := f.threshold(0.2, &a, weight); got.edge != 40 {
		t.Errorf("the threshold is %+v", got)
	}
	// If explored fills count for 100 requests, none may be lost safely.
	if got := f.threshold(0.07, &a, func(float64) float64 { return 100 }); got != passAll {
		t.Errorf("the threshold is %+v", got)
	}
	f.advance(1740)
	near(t, "the sum after the half-life", f.sums[40], 450)
	near(t, "the squares after the half-life", f.squares[40], 450)
}

// Of 1000 requests a second, 500, 300, 100 and 100 are in the buckets 10, 20, 30 and 40, which have 10, 90, 0 and 900
// fills. max_loss alone drops a part of bucket 20.
func TestOfTheThresholdsOfLimitAndMaxLossTheHigherHolds(t *testing.T) {
	for _, c := range []struct {
		limit, maxLoss float64
		edge           int
		share          float64
	}{
		{0, 0.07, 20, 0.3643},
		{150, 0, 30, 0.1455},
		{150, 0.07, 30, 0.1455},
		{900, 0, 10, 0.873},
		{900, 0.07, 20, 0.3643},
	} {
		s := New(Settings{Limit: c.limit, MaxLoss: c.maxLoss, Explore: 0.03, DryRun: true, Keys: 1}, 1, t0)
		s.arrivals.counts[10], s.arrivals.counts[20], s.arrivals.counts[30], s.arrivals.counts[40] = 500, 300, 100, 100
		s.arrivals.rate = 1000
		s.fills.sums[10], s.fills.sums[20], s.fills.sums[40] = 10, 90, 900
		s.fills.squares = s.fills.sums
		s.setThreshold()
		near(t, "the share that passes", s.threshold.share, c.share)
		if s.threshold.edge != c.edge {
			t.Errorf("limit %v, max_loss %v: the threshold is %+v, want its edge in bucket %d", c.limit, c.maxLoss, s.threshold, c.edge)
		}
	}
}

// Requests of one score are all worth the same: dropping a part of them at random would lose the same part of the fills.
func TestMaxLossDropsNothingOfOneScore(t *testing.T) {
	s := New(Settings{MaxLoss: 0.5, Explore: 0.03, Keys: 1}, 1, t0)
	s.arrivals.counts[63], s.arrivals.rate = 1000, 1000
	s.fills.sums[63], s.fills.squares[63] = 1e6, 1e6
	s.setThreshold()
	if s.threshold.edge != 63 || !(s.threshold.pass > 0.999) || !(s.threshold.share > 0.999) || !(s.explore > 0 && s.explore <= 1) || !(s.weight >= 1 && s.weight < 1e10) {
		t.Errorf("the threshold is %+v, explored with %v, weight %v", s.threshold, s.explore, s.weight)
	}
}

func TestTheReportCountsExploredFillsForThoseThatWereDropped(t *testing.T) {
	s := New(Settings{Limit: 100, Burst: 10, Explore: 0.5, Keys: 1}, 1, t0)
	seg := segment("a")
	decided := func(d Decision, sent, fill bool, n int, second float64) {
		for range n {
			s.advance(at(second))
			s.ledger.decided(&d)
			if !sent {
				s.Unsent(d, at(second))
			} else {
				s.Learn(seg, d, fill, at(second))
			}
		}
	}
	explored := Decision{Kind: Explored, Score: 0.25, would: Explored, weight: 5}
	decided(Decision{Score: 0.5, weight: 1}, true, true, 99, 0)
	decided(explored, true, false, 15, 0)
	s.weight = 5
	if r := s.Report(at(1)); r.State != Cold || r.Hour.High != 0 {
		t.Errorf("with 99 fills: %v, %+v", r.State, r.Hour)
	}
	decided(explored, true, true, 1, 1)
	decided(explored, false, false, 4, 1)
	for range 80 {
		s.ledger.decided(&Decision{Kind: Dropped, would: Dropped})
	}
	s.weight = 5
	r := s.Report(at(1))
	// One explored fill stands for 4 lost ones; 20 were explored, and 16 sent: D = 5, V = 25, K = 100.
	near(t, "the loss", r.Hour.Estimate, 5.0/105)
	low, high := interval(5, 25, 5)
	near(t, "the lower bound", r.Hour.Low, low/(low+100))
	near(t, "the upper bound", r.Hour.High, high/(high+100))
	near(t, "the fills lost so far", r.LostFills, 4) // all that were explored before it had been sent
	if r.Fills != [2]uint64{99, 1} || r.Requests != [3]uint64{99, 20, 80} {
		t.Errorf("fills %v, requests %v", r.Fills, r.Requests)
	}
	if want := (Range{Arrivals: 199, Sent: 115, Expected: 99*0.5 + 16*0.25, Fills: 100}); r.Ranges[0] != want {
		t.Errorf("the lowest range is %+v, want %+v", r.Ranges[0], want)
	}
	near(t, "the lower end of the next range", r.Ranges[1].From, 0x1p-14)
	decided(explored, true, true, 1, 1) // of 21, 17 have been sent
	r = s.Report(at(1))
	near(t, "the fills lost so far", r.LostFills, 4+4*21.0/17)
	near(t, "their variance", r.LostVariance, 16+16*21.0/17*21/17)
	if r := s.Report(at(599)); r.TenMinutes.Arrivals != 200 {
		t.Errorf("the last ten minutes: %+v", r.TenMinutes)
	}
	if r := s.Report(at(601)); r.TenMinutes != (Window{Time: 542 * time.Second}) || r.Hour.Arrivals != 200 {
		t.Errorf("the last ten minutes: %+v, the hour %+v", r.TenMinutes, r.Hour)
	}
	if r := s.Report(at(3600)); r.Hour.Arrivals != 0 {
		t.Errorf("the hour: %+v", r.Hour)
	}
}

// Of the last minute's 20 explored requests, 4 were not sent.
func TestUnsentRequestsAreForgotten(t *testing.T) {
	counts := ledger{explored: 20, unsent: 4}
	counts.advance(60)
	d := Decision{Kind: Explored, would: Explored, weight: 5}
	counts.decided(&d)
	counts.outcome(&d, true) // 10 and 1 explored, 2 unsent
	near(t, "the fills lost", counts.lost, 4*11.0/9)
}

// In an hour in which the limit dropped requests, 600 fills were received and no explored request was filled.
func TestTheUpperBoundStaysWhenAllPassAgain(t *testing.T) {
	s := steady(Settings{Limit: 400, Burst: 40, Explore: 0.03}, 0.001, 0.01, 0.1)
	send(s, segment("c"), 600, 600, 0)
	arrive(s, 3, 300, 10, 20)
	// A weight of 1/(0.03/0.97 · 388/512) - 1 = 41.67; a sum of 0 may be 3.67 of the next one.
	const high = 3.670 * 41.67 / (3.670*41.67 + 600)
	near(t, "the upper bound while the limit drops", s.Report(at(10)).Hour.High, high)
	r := s.Report(at(70))
	near(t, "the threshold without requests", r.Threshold, 0)
	near(t, "the upper bound without requests", r.Hour.High, high)
}

func TestADryRunDropsNothing(t *testing.T) {
	s := steady(Settings{Limit: 400, Burst: 40, Explore: 0.03, DryRun: true}, 0.001, 0.01, 0.1)
	for sec := range 10 {
		for i := range 900 {
			seg := segment(string(rune('a' + i%3)))
			now := at(float64(sec) + float64(i)/900)
			d := s.Decide(seg, 0, now)
			if d.Kind != Passed {
				t.Fatal("a dry run dropped a request")
			}
			s.Learn(seg, d, i%90 == 2 || i%450 == 0, now) // 10 fills a second of c, 2 of a
		}
	}
	r := s.Report(at(9.99))
	if r.Requests[Dropped] < 4000 || r.Fills[Passed] < 90 {
		t.Errorf("the report: %+v", r)
	}
	// In the first second everything passes; then the 2 fills of the worst segment are below the threshold.
	near(t, "the loss", r.Hour.Estimate, 18.0/120)
	near(t, "the fills lost so far", r.LostFills, 18)
	near(t, "the variance", r.LostVariance, 18)
}

func TestSettingsKeepWhatWasLearned(t *testing.T) {
	s := New(Settings{Keys: 2}, 1, t0)
	seg := segment("a", "b")
	send(s, seg, 200, 150, 0)
	s.Set(Settings{Keys: 2, Limit: 10, Burst: 10, Explore: 0.1})
	if r := s.Report(at(1)); r.State != Learning || r.Segments != 2 {
		t.Errorf("after a change of the limit: %v, %d segments", r.State, r.Segments)
	}
}

func TestWordsOfTheReport(t *testing.T) {
	words := []string{Passed.String(), Explored.String(), Dropped.String(), Cold.String(), Learning.String(), Paused.String()}
	if got := strings.Join(words, " "); got != "passed explored dropped cold learning paused" {
		t.Error(got)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := New(Settings{Limit: 100, Burst: 10, Explore: 0.1, MaxLoss: 0.01, Keys: 3}, 1, t0)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				now := at(float64(i) / 50)
				var seg Segment
				for k := range 3 {
					s.Hash(k, &seg, []byte{byte(i % (7 << k))})
				}
				d := s.Decide(&seg, float64(i%10), now)
				switch {
				case d.Kind == Dropped:
				case i%9 == 0:
					s.Unsent(d, now)
				default:
					s.Learn(&seg, d, i%5 == 0, now)
				}
				if i%100 == g {
					s.Report(now)
					s.Explain(&seg, now)
					s.SetLimit(float64(50 + i))
					s.Set(Settings{Limit: 100, Burst: 10, Explore: 0.1, Keys: 3})
				}
			}
		})
	}
	wg.Wait()
	r := s.Report(at(6))
	if n := r.Requests[Passed] + r.Requests[Explored] + r.Requests[Dropped]; n != 2400 {
		t.Errorf("%d decisions were counted, want 2400", n)
	}
}

// FuzzShaper gives a shaper requests, outcomes and pauses as the bytes say, and checks what must hold always.
func FuzzShaper(f *testing.F) {
	f.Add(uint64(1), []byte("some requests and outcomes"))
	f.Add(uint64(2), []byte{0, 255, 0, 255, 7, 7, 7, 250, 250, 3, 240})
	f.Fuzz(func(t *testing.T, seed uint64, events []byte) {
		random := rand.New(rand.NewPCG(seed, 0))
		settings := Settings{
			Limit: float64(random.IntN(3)) * 50, Burst: random.IntN(30), Explore: 0.005 + 0.495*random.Float64(),
			MaxLoss: max(0, random.Float64()-0.5), DryRun: random.IntN(4) == 0, Keys: 1 + random.IntN(MaxKeys),
		}
		s := New(settings, seed, t0)
		now := t0
		for _, event := range events {
			step := time.Duration(event) * time.Millisecond
			switch {
			case event > 250:
				step = time.Duration(event-250) * 7 * time.Hour
			case event > 240:
				step = -time.Second
				s.SetLimit(float64(event - 241))
			}
			now = now.Add(step)
			for range 1 + event%32 {
				var seg Segment
				for k := range settings.Keys {
					seg.set(k, random.Uint64()>>(58-k))
				}
				d := s.Decide(&seg, float64(random.IntN(30)), now)
				if !(d.Score >= 0 && d.Score <= 1) || !(d.weight >= 1) || math.IsInf(d.weight, 0) {
					t.Fatalf("the decision is %+v", d)
				}
				if d.Kind != Dropped {
					if random.IntN(8) == 0 {
						s.Unsent(d, now)
					} else {
						s.Learn(&seg, d, random.IntN(256) < int(event), now)
					}
				}
			}
			check(t, s, now)
		}
	})
}

// check fails the test if the state of s cannot be.
func check(t *testing.T, s *Shaper, now time.Time) {
	t.Helper()
	used := 0
	for i := range s.model.table.sets {
		for _, e := range s.model.table.sets[i] {
			if !(e.fills >= 0 && e.fills <= e.sent && e.sent <= sentCeiling && e.run >= 0 && e.run <= resetAfter && e.seen >= 0) {
				t.Fatalf("an entry is %+v", e)
			}
			if e.tag != 0 {
				used++
			}
		}
	}
	r := s.Report(now)
	if used != r.Segments {
		t.Fatalf("%d entries hold a prefix, and %d are reported", used, r.Segments)
	}
	for _, w := range []Window{r.TenMinutes, r.Hour} {
		if !(w.Low >= 0 && w.Low <= w.Estimate && w.Estimate <= w.High && w.High <= 1) {
			t.Fatalf("the loss is %+v", w)
		}
	}
	if !(r.Explore > 0 && r.Explore <= 1) || !(r.Threshold >= 0 && r.Threshold <= 1) || !(r.LostFills >= 0 && r.LostVariance >= 0) {
		t.Fatalf("the report is %+v", r)
	}
}
