package pool

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// stress is a burst of goroutines, without synctest, against an SSP with many kinds of errors.
type stress struct {
	change  func(*Options)
	speaks  exchange.Protocol // Unknown: HTTP/2 or HTTP/1, if both are offered
	mayFail bool              // dials sometimes fail
}

func TestBurstOfTenTimesThePlacesKeepsEveryBound(t *testing.T) {
	for name, c := range map[string]stress{
		"http1":           {speaks: exchange.HTTP1},
		"http1 no queue":  {speaks: exchange.HTTP1, change: func(o *Options) { o.MaxPending = 0 }},
		"pipelined":       {speaks: exchange.HTTP1Pipelined},
		"http2":           {speaks: exchange.HTTP2},
		"mixed":           {speaks: exchange.Unknown},
		"fair":            {speaks: exchange.HTTP1, change: func(o *Options) { o.Fair = true }},
		"failing":         {speaks: exchange.HTTP1, mayFail: true},
		"unlimited queue": {speaks: exchange.HTTP1, change: func(o *Options) { o.MaxPending = -1 }},
	} {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

func (c stress) run(t *testing.T) {
	known := goleak.IgnoreCurrent()
	defer func() { testsupport.NoError(t, testsupport.Leaks(known)) }()
	s := newFakeSSP(t)
	s.addrs = addresses(3)
	s.set(func(d dialCall) dialResult {
		r := dialResult{after: time.Duration(rand.IntN(2000)) * time.Microsecond, protocol: c.speaks}
		if c.speaks == exchange.Unknown && d.offer && rand.IntN(2) == 0 {
			r.protocol = exchange.HTTP2
		}
		if r.protocol == exchange.HTTP2 || r.protocol == exchange.HTTP1Pipelined {
			r.places = 1 + rand.IntN(8)
		}
		if c.mayFail && rand.IntN(3) == 0 {
			r.err = errRefused
		}
		return r
	})
	o := testOptions()
	o.Protocol = c.speaks
	o.MaxConns, o.MaxIdle, o.MaxHTTP2Conns, o.MaxStreams, o.MaxDials, o.MaxPending, o.MaxRequests = 16, 12, 4, 8, 6, 40, 50
	o.BackoffMin, o.BackoffMax, o.PendingTimeout = msec, 5*msec, 20*msec
	o.IdleTimeout, o.MaxAge = 50*msec, 80*msec
	if c.change != nil {
		c.change(&o)
	}
	p := New(o, s)

	var given, back atomic.Int64
	s.do = func(f *fakeConn, ex *exchange.Exchange) error {
		defer back.Add(1)
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
		} else {
			runtime.Gosched()
		}
		switch rand.IntN(60) {
		case 0:
			f.closeItself(exchange.ClosedError)
			return errFakeLost
		case 1:
			if f.protocol == exchange.HTTP2 {
				f.goAway(exchange.ClosedGoaway)
			}
		case 2:
			if f.protocol != exchange.HTTP1 {
				f.setPlaces(rand.IntN(9))
			}
		}
		return nil
	}
	outcomes := c.burst(t, p, s, &given, &back)

	ctx, cancel := context.WithTimeout(t.Context(), testsupport.Patience)
	defer cancel()
	testsupport.Equal(t, p.Close(ctx), 0, "%d places were never released")
	wantConsistent(t, p, s)
	snap := p.Snapshot()
	testsupport.True(t, snap.PlacesInUse == 0 && len(openMembers(p)) == 0 && snap.Pending+snap.WaitingForDials == 0 && s.openCount() == 0,
		"after Close: %d places in use, %d members, %d waiting, %d open", snap.PlacesInUse, len(openMembers(p)), snap.Pending+snap.WaitingForDials, s.openCount())
	testsupport.True(t, given.Load() == back.Load(), "%d places were acquired, %d were released", given.Load(), back.Load())
	testsupport.AtLeast(t, given.Load(), leastServed, "only %d requests were served: %v", outcomes)
	testsupport.True(t, outcomes[exchange.Internal] <= 0, "outcomes %v", outcomes)
	total := counted(p, "pool_acquire_seconds")
	testsupport.Equal(t, uint64(total), snap.Arrivals, "%d requests got a place or an error")
	testsupport.AtMost(t, snap.Holds, uint64(given.Load()), "%d holds observed")
}

// leastServed is how many requests a burst serves at least. On a slow machine most requests miss their deadlines, and
// the burst lasts longer.
const leastServed = 100

// burst acquires places for a while, with ten times as many goroutines as places, and checks the
// pool all the time.
func (c stress) burst(t *testing.T, p *Pool, s *fakeSSP, given, back *atomic.Int64) map[exchange.Outcome]int {
	var (
		clients, watcher sync.WaitGroup
		mu               sync.Mutex
		outcomes         = map[exchange.Outcome]int{}
		over             = make(chan struct{})
		end              = time.Now().Add(testsupport.Patience)
	)
	watcher.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			wantConsistent(t, p, s)
			if snap := p.Snapshot(); snap.Saturation > 1 || snap.PendingLimit >= 0 && snap.Pending > snap.PendingLimit || snap.Dialing > snap.DialsLimit {
				t.Errorf("a limit is exceeded: %+v", snap)
			}
			time.Sleep(msec)
		}
	})
	for range 320 {
		clients.Go(func() {
			for n := 0; n < 8 || given.Load() < leastServed && time.Now().Before(end); n++ {
				ex := &exchange.Exchange{Wanted: exchange.Wanted{Deadline: time.Now().Add(time.Duration(1+rand.IntN(60)) * msec)}, FairKey: rand.Uint64N(20)}
				cancel := context.CancelFunc(func() {})
				if rand.IntN(8) == 0 {
					ex.Context, cancel = context.WithTimeout(t.Context(), time.Duration(rand.IntN(5000))*time.Microsecond)
				}
				place, err := p.Acquire(ex)
				cancel()
				outcome := exchange.Fill
				if err != nil {
					outcome = exchange.AsError(err).Outcome
				}
				mu.Lock()
				outcomes[outcome]++
				mu.Unlock()
				switch {
				case err != nil:
					runtime.Gosched()
				case rand.IntN(50) == 0:
					given.Add(1)
					back.Add(1)
					place.Release(ex)
				default:
					given.Add(1)
					place.Do(ex)
				}
			}
		})
	}
	clients.Wait()
	close(over)
	watcher.Wait()
	return outcomes
}
