package ssp

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"adbuffer/internal/testsupport"
)

// The test compares with plain arithmetic: a request adds a fifth, a retry takes one, ten is the
// maximum, and the budget is full at the start.
func TestRetryBudgetIsAFifthOfTheRequestsAndTen(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		var b retryBudget
		b.init()
		fifths := 50
		retries, requests := 0, 0
		for range 2000 {
			switch n := rnd.IntN(10); {
			case n < 7:
				b.earn()
				requests++
				fifths = min(fifths+1, 50)
			case n < 9:
				want := fifths >= 5
				testsupport.MustEqual(t, b.spend(), want, "seed %[2]d: spend is %[1]v with %[3]d fifths", seed, fifths)
				if want {
					fifths -= 5
					retries++
				}
			default:
				b.refund()
				fifths = min(fifths+5, 50)
				retries-- // most of these retries: this one was not sent
			}
			testsupport.MustTrue(t, retries <= requests/5+10, "seed %d: %d retries for %d requests", seed, retries, requests)
		}
	}
}

func TestRetryBudgetHoldsForConcurrentRequests(t *testing.T) {
	var b retryBudget
	b.init()
	var spent atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				b.earn()
				if b.spend() {
					spent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	n := spent.Load()
	testsupport.True(t, n <= 20000/5+10 && n >= 20000/5, "%d retries for 20000 requests, want a fifth, and ten", n)
}
