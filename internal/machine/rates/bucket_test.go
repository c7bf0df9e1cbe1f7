package rates

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func count(b *Bucket, now time.Duration) (n int) {
	for b.Take(now) {
		n++
	}
	return n
}

func TestBucketHasItsBurstAndFillsAtItsRate(t *testing.T) {
	for _, rate := range []float64{1, 7, 1000, 7e6} {
		var b Bucket
		b.Start(0, rate, 10, 0)
		now := time.Hour
		testsupport.Equal(t, count(&b, now), 10, "rate %[2]v: %[1]d tokens in a full bucket", rate)
		testsupport.True(t, !b.Has(now), "rate %v: an empty bucket has a token", rate)
		m := b.Deficit(now)
		testsupport.True(t, m >= 9.99 && m <= 10.01, "rate %v: %v tokens are missing, want 10", rate, m)
		testsupport.Equal(t, count(&b, now+time.Duration(5e9/rate)+1), 5, "rate %[2]v: %[1]d tokens after five intervals", rate)
	}
}

func TestBucketStartsWithMissingTokens(t *testing.T) {
	var b Bucket
	testsupport.True(t, !b.Take(time.Hour) && b.Deficit(0) == 0, "the zero bucket has tokens")
	b.Start(time.Hour, 100, 10, 0)
	testsupport.Equal(t, count(&b, 0), 10, "%d tokens in a full bucket, at a time before its start")
	b.Start(time.Hour, 100, 10, 4)
	testsupport.Equal(t, count(&b, time.Hour), 6, "%d tokens")
	b.Start(0, 0, 10, 0)
	testsupport.True(t, !b.Take(time.Hour), "a token at rate 0")
}

func TestConcurrentTakesGetEachTokenOnce(t *testing.T) {
	var b Bucket
	b.Start(0, 1, 1000, 0)
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { taken.Add(int64(count(&b, time.Hour))) })
	}
	wg.Wait()
	testsupport.Equal(t, taken.Load(), 1000, "%d tokens were taken")
}

// The interval between the tokens of a very low rate must not become infinite: that would give any number of
// tokens.
func TestTheLowestRateGivesOnlyTheBurst(t *testing.T) {
	for _, rate := range []float64{1e-12, 1e-300, math.SmallestNonzeroFloat64} {
		var b Bucket
		b.Start(0, rate, 2, 0)
		taken := 0
		for now := range 5 {
			if b.Take(time.Duration(now) * time.Hour) {
				taken++
			}
		}
		testsupport.True(t, taken == 2 && !b.Has(5*time.Hour), "a rate of %g gave %d tokens in five hours, want the burst of 2", rate, taken)
	}
}

func TestJitterStaysWithinItsShare(t *testing.T) {
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		d := Jitter(100*time.Millisecond, 0.2)
		least, most = min(least, d), max(most, d)
	}
	testsupport.Between(t, least, 80*time.Millisecond, 90*time.Millisecond, "the least of 1000 is %v")
	testsupport.Between(t, most, 110*time.Millisecond, 120*time.Millisecond, "the most of 1000 is %v")
}
