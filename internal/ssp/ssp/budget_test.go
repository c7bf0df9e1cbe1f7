package ssp

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
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
				b.earn(3)
				requests++
				fifths = min(fifths+1, 50)
			case n < 9:
				want := fifths >= 5
				testsupport.MustEqual(t, b.spend(3), want, "seed %[2]d: spend is %[1]v with %[3]d fifths", seed, fifths)
				if want {
					fifths -= 5
					retries++
				}
			default:
				b.refund(3)
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
			for range 500 {
				b.earn(3)
				if b.spend(3) {
					spent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	n := spent.Load()
	testsupport.True(t, n <= 2000/5+10 && n >= 2000/5, "%d retries for 2000 requests, want a fifth, and ten", n)
}

// A client whose requests all fail uses at most ten tokens, and what its own requests earn. Four such
// clients leave a fifth of the others' requests to them, and sixteen together have forty tokens.
func TestRetriesOfOneClientLeaveTheBudgetOfOthers(t *testing.T) {
	var b retryBudget
	b.init()
	spendAll := func(g rates.Group) (n int) {
		for b.spend(g) {
			n++
		}
		return n
	}
	for range 1000 {
		b.earn(0)
		b.spend(0)
	}
	testsupport.Equal(t, spendAll(1), 10, "another client has %d retries, want 10")
	testsupport.Equal(t, spendAll(0), 0, "the client has %d retries left, want none")
	for range 25 {
		b.earn(0)
	}
	testsupport.Equal(t, spendAll(0), 5, "25 requests earned %d retries, want 5")

	b.init()
	n := 0
	for g := range rates.Group(rates.ClientGroups) {
		n += spendAll(g)
	}
	testsupport.Equal(t, n, 40, "all groups together have %d retries, want 40")
	for range 5 {
		b.earn(15)
	}
	testsupport.Equal(t, spendAll(15), 1, "5 requests of a group earned %d retries, want 1")
}
