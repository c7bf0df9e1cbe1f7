package capacity

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestErlangCAgreesWithPublishedValues(t *testing.T) {
	for _, c := range []struct {
		source  string
		servers int
		load    float64
		want    float64
		within  float64 // half a unit of the last digit printed, carried over to the result
	}{
		// J. Dunlop, D. Girma, J. Irvine, "Digital Mobile Communications and the TETRA
		// System", appendix A.4, Erlang C table: the loads of its worked example, printed
		// to 0.01 erlang, for 5 % and 1 % delayed calls.
		{"Dunlop et al., 8 channels, 5 %", 8, 3.87, 0.05, 0.0004},
		{"Dunlop et al., 10 channels, 1 %", 10, 4.08, 0.01, 0.0002},
		// D. Gross, C. M. Harris, "Fundamentals of Queueing Theory", the eye clinic: 6
		// patients an hour, 3 doctors, 20 minutes each. p0 = 1/9, so (2³/3!)·3·p0 = 4/9.
		{"Gross and Harris, eye clinic", 3, 2, 4.0 / 9, 1e-15},
		// M/M/1: a customer waits if the server is busy. The probability is ρ.
		{"M/M/1", 1, 0.7, 0.7, 1e-15},
		// M/M/2: 2ρ²/(1+ρ), ρ = 0.75.
		{"M/M/2", 2, 1.5, 2 * 0.75 * 0.75 / 1.75, 1e-15},
	} {
		near(t, c.source, erlangC(c.servers, c.load), c.want, c.within)
	}
}

func TestErlangBAgreesWithPublishedValues(t *testing.T) {
	// Westbay Engineers, Traffic Calculators manual (erlang.com), "How much traffic can a trunk
	// group handle": 15 lines block 1 % of 8.108 erlangs.
	near(t, "Westbay, 15 lines", erlangB(15, 8.108), 0.01, 0.000005)
	// One line: a/(1+a). Two: a²/2 / (1 + a + a²/2).
	near(t, "one line", erlangB(1, 3), 0.75, 1e-15)
	near(t, "two lines", erlangB(2, 2), 0.4, 1e-15)
}

func TestMeanWaitAgreesWithPublishedValues(t *testing.T) {
	// The eye clinic again: 8/9 patients wait on average, so each waits 8/54 h.
	near(t, "mean wait, s", meanWait(6.0/3600, 20*time.Minute, 3).Seconds(), 8.0/54*3600, 1e-3)
}

// erlangBFromFactorials is the definition, (a^N/N!) / Σ a^k/k!, in exact rational arithmetic.
func erlangBFromFactorials(servers int, load *big.Rat) *big.Rat {
	term, sum := big.NewRat(1, 1), big.NewRat(1, 1)
	for k := 1; k <= servers; k++ {
		term.Mul(term, load)
		term.Quo(term, big.NewRat(int64(k), 1))
		sum.Add(sum, term)
	}
	return term.Quo(term, sum)
}

func TestErlangFormulasEqualTheirDefinitionInExactArithmetic(t *testing.T) {
	for _, c := range []struct{ servers, load int }{
		{1, 2}, {10, 8}, {98, 80}, {170, 150}, {171, 150}, {172, 171}, {440, 400}, {500, 100}, {1100, 1099},
	} {
		load := big.NewRat(int64(c.load), 1)
		b := erlangBFromFactorials(c.servers, load)
		wantB, _ := b.Float64()
		name := fmt.Sprintf("%d servers, %d erlangs", c.servers, c.load)
		near(t, "ErlangB of "+name, erlangB(c.servers, float64(c.load))/wantB, 1, 1e-13)
		if c.load >= c.servers {
			continue
		}
		// The delay formula in its own form: T / (Σ_{k<N} a^k/k! + T) with T = a^N/N! ·
		// N/(N−a), divided by Σ_{k≤N}.
		n, a := big.NewRat(int64(c.servers), 1), load
		factor := new(big.Rat).Quo(n, new(big.Rat).Sub(n, a))
		tail := new(big.Rat).Mul(b, factor)
		below := new(big.Rat).Sub(big.NewRat(1, 1), b)
		wantC, _ := new(big.Rat).Quo(tail, new(big.Rat).Add(below, tail)).Float64()
		near(t, "ErlangC of "+name, erlangC(c.servers, float64(c.load))/wantC, 1, 1e-12)
	}
}

func TestErlangFormulasAtTheirEdges(t *testing.T) {
	if b, c := erlangB(maxPlaces, 1), erlangC(maxPlaces, 1); b != 0 || c != 0 { // far below the smallest float64
		t.Errorf("a huge pool loses %v and lets %v wait, want 0", b, c)
	}
	got := erlangB(10, 10)
	testsupport.True(t, got > 0 && got < 1, "ErlangB of a full pool = %v, want between 0 and 1: losses relieve it", got)
}

func TestPlacesIsTheLeastNumberThatKeepsTheShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		rate := math.Exp(rng.Float64() * math.Log(20000))
		hold := time.Duration(1+rng.IntN(300)) * time.Millisecond
		share := math.Exp(-0.05 - 10*rng.Float64())
		n := Places(rate, hold, share)
		testsupport.AtMost(t, erlangC(n, Load(rate, hold)), share, "Places(%[2]v, %[3]v, %[4]v) = %[5]d, with which %[1]v wait", rate, hold, share, n)
		if got := erlangC(n-1, Load(rate, hold)); got <= share {
			t.Errorf("Places(%v, %v, %v) = %d, but %d are enough for the share: %v", rate, hold, share, n, n-1, got)
		}
		load := Load(rate, hold)
		testsupport.True(t, float64(n) > load, "Places(%v, %v, %v) = %d, not above the load %v", rate, hold, share, n, load)
	}
}

func TestPlacesAtTheEdges(t *testing.T) {
	for _, c := range []struct {
		rate, share float64
		hold        time.Duration
		want        int
	}{
		{0, 0.03, time.Second, 0},
		{math.NaN(), 0.03, time.Second, 0},
		{100, 0.03, 0, 0},
		{1e-9, 0.03, time.Millisecond, 1},
		{100, 0, time.Second, maxPlaces},
		{100, math.NaN(), time.Second, maxPlaces},
		{100, 1, time.Second, 101}, // all requests may wait, but the queue must not grow without end
		{math.Inf(1), 0.03, time.Second, maxPlaces},
		{maxPlaces, 0.03, time.Second, maxPlaces},
	} {
		testsupport.Equal(t, Places(c.rate, c.hold, c.share), c.want, "Places(%[2]v, %[3]v, %[4]v) = %[1]d", c.rate, c.hold, c.share)
	}
}

func TestMoreLoadNeverNeedsFewerPlacesAndMorePlacesNeverMakeMoreWait(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		rate := 1 + rng.Float64()*5000
		hold := time.Duration(1 + rng.IntN(int(200*time.Millisecond)))
		share := 0.001 + 0.9*rng.Float64()
		n := Places(rate, hold, share)
		testsupport.AtLeast(t, Places(rate*(1+rng.Float64()), hold, share), n, "a higher rate than %[2]v (hold %[3]v, share %[4]v) needs %[1]d places instead of %[5]d", rate, hold, share, n)
		if got := Places(rate, hold+time.Duration(rng.IntN(int(hold))), share); got < n {
			t.Errorf("a longer hold than %v (rate %v, share %v) needs %d places instead of %d", hold, rate, share, got, n)
		}
		testsupport.AtLeast(t, Places(rate, hold, share/2), n, "a smaller share than %[2]v (rate %[3]v, hold %[4]v) needs %[1]d places instead of %[5]d", share, rate, hold, n)
		testsupport.True(t, erlangC(n+1, Load(rate, hold)) < erlangC(n, Load(rate, hold)), "one place more than %d (rate %v, hold %v) lets as many wait", n, rate, hold)
		less, more := meanWait(rate, hold, n+1), meanWait(rate, hold, n)
		testsupport.AtMost(t, less, more, "one place more than %[2]d (rate %[3]v, hold %[4]v) lets them wait %[1]v instead of %[5]v", n, rate, hold, more)
		b, c := erlangB(n, Load(rate, hold)), erlangC(n, Load(rate, hold))
		testsupport.True(t, b <= c, "%d places, rate %v, hold %v: more are lost (%v) than would wait (%v)", n, rate, hold, b, c)
	}
}

func TestFullRateIsWhereWaitingBecomesCertain(t *testing.T) {
	const hold = 125 * time.Millisecond
	full := FullRate(40, hold)
	near(t, "share that waits at the full rate", erlangC(40, Load(full, hold)), 1, 1e-12)
	got := erlangC(40, Load(full*0.999, hold))
	testsupport.True(t, got < 1, "share that waits just below the full rate = %v, want below 1", got)
	wait := meanWait(full*0.999, hold, 40)
	testsupport.True(t, wait > hold, "MeanWait just below the full rate = %v, want more than a hold", wait)
}

func TestSquareRootRuleIsWithinTwoPlacesFrom40To4000Erlangs(t *testing.T) {
	for load := 40.0; load <= 4000; load *= 1.05 {
		exact := float64(placesForLoad(load, DefaultWaitingShare))
		near(t, fmt.Sprintf("rule of thumb for %v erlangs", load), squareRootPlaces(load), exact, 2)
	}
	for load := 0.5; load < 40; load *= 1.1 {
		if exact := placesForLoad(load, DefaultWaitingShare); squareRootPlaces(load) >= float64(exact) {
			t.Errorf("rule of thumb for %v erlangs = %v, want below the exact %d", load, squareRootPlaces(load), exact)
		}
	}
}
