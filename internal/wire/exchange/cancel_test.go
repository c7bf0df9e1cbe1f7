package exchange_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// At any moment of the end, the function of a call runs at most once, and never after Finish.
func TestCancelRunsNothingBehindFinish(t *testing.T) {
	for round := range 300 {
		c := exchange.NewCancel()
		var inCall atomic.Bool
		var ran atomic.Int32
		f := func() {
			testsupport.True(t, inCall.Load(), "the function runs outside of a call")
			ran.Add(1)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for range round % 30 {
				runtime.Gosched()
			}
			c.End()
			c.End()
		})
		for range 20 {
			inCall.Store(true)
			c.Begin(&f)
			runtime.Gosched()
			ended := c.Err() != nil
			c.Finish(&f)
			inCall.Store(false)
			if ended {
				break
			}
		}
		wg.Wait()
		testsupport.MustTrue(t, c.Err() != nil && ran.Load() <= 2, "error %v, ran %d times", c.Err(), ran.Load())
		inCall.Store(true)
		before := ran.Load()
		c.Begin(&f)
		c.Finish(&f)
		testsupport.MustEqual(t, ran.Load(), before+1, "a call that begins after the end does not return it: %v")
	}
}

func TestFinishWaitsForTheFunctionThatRuns(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c, ended := exchange.NewCancel(), false
		f := func() {
			time.Sleep(time.Second)
			ended = true
		}
		c.Begin(&f)
		go c.End()
		synctest.Wait() // the function runs
		c.Finish(&f)
		testsupport.True(t, ended, "Finish returned while the function ran")
	})
}

func TestContextsOfACancelEndWithIt(t *testing.T) {
	c := exchange.NewCancel()
	before := runtime.NumGoroutine()
	all := make([]context.Context, 10)
	for i := range all {
		var cancel context.CancelFunc
		all[i], cancel = context.WithCancel(c)
		if i%2 == 0 {
			cancel()
		} else {
			defer cancel()
		}
	}
	testsupport.AtMost(t, runtime.NumGoroutine(), before, "%d goroutines, %d before", before)
	for i, ctx := range all {
		testsupport.True(t, (ctx.Err() != nil) == (i%2 == 0), "context %d: %v", i, ctx.Err())
	}
	c.End()
	for i, ctx := range all {
		if <-ctx.Done(); ctx.Err() == nil {
			t.Errorf("context %d has not ended", i)
		}
	}
	late, cancel := context.WithCancel(c)
	defer cancel()
	testsupport.True(t, late.Err() != nil, "a context made after the end has not ended")
}

// The context package reads Value after it has found that the context has not ended, and before it
// calls AfterFunc. endsMeanwhile ends between the two.
type endsMeanwhile struct{ *exchange.Cancel }

func (e endsMeanwhile) Value(any) any {
	e.End()
	return nil
}

func TestAContextThatEndsWhileAnotherIsMadeFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		stop := context.AfterFunc(endsMeanwhile{exchange.NewCancel()}, func() { calls.Add(1) })
		synctest.Wait()
		testsupport.True(t, !stop() && calls.Load() == 1, "%d calls, want 1 that stop does not prevent", calls.Load())
		ctx, cancel := context.WithCancel(endsMeanwhile{exchange.NewCancel()})
		defer cancel()
		<-ctx.Done()
	})
}
