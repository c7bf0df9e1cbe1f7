package ssp

import (
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/machine/rates"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// init makes b a breaker with its own window.
func (b *breaker) init(o BreakerOptions) {
	*b = breaker{opts: o, Window: new(rates.Window), shedCounts: new(shedCounts), lender: new(fakePool), forgot: new(atomic.Uint64)}
	b.Window.Init(o.Window, 0)
}

func TestBreakerShedsInProportion(t *testing.T) {
	for _, c := range []struct {
		requests, failures     int
		minRequests            int
		failureRatio, minProbe float64
		want                   float64
	}{
		{requests: 0, minRequests: 1, failureRatio: 0.5, minProbe: 0.1, want: 0},
		{requests: 19, failures: 19, minRequests: 20, failureRatio: 0.5, minProbe: 0.1, want: 0},
		{requests: 20, failures: 20, minRequests: 20, failureRatio: 0.5, minProbe: 0.1, want: 0.9},
		{requests: 20, failures: 10, minRequests: 20, failureRatio: 0.5, minProbe: 0.1, want: 0},
		{requests: 20, failures: 15, minRequests: 20, failureRatio: 0.5, minProbe: 0.1, want: 0.45},
		{requests: 100, failures: 1, minRequests: 1, failureRatio: 0, minProbe: 0.5, want: 0.005},
		{requests: 100, failures: 100, minRequests: 1, failureRatio: 0.99, minProbe: 0.001, want: 0.999},
		{requests: 100, failures: 100, minRequests: 1, failureRatio: 0.5, minProbe: 1, want: 0},
	} {
		var b breaker
		b.init(BreakerOptions{Enabled: true, Window: time.Second, MinRequests: c.minRequests, FailureRatio: c.failureRatio, MinProbe: c.minProbe})
		for i := range c.requests {
			b.record(0, 0, i < c.failures)
		}
		got := b.shedRatio(0)
		testsupport.True(t, math.Abs(got-c.want) <= 1e-9, "%+v: sheds %v", c, got)
	}
}

// The breaker never sheds all requests, and sheds none up to the ratio. More failures never make it
// shed less.
func TestShedShareIsMonotonousAndBounded(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := breaker{opts: BreakerOptions{Enabled: true, FailureRatio: 0.99 * rnd.Float64(), MinProbe: 0.001 + 0.999*rnd.Float64()}}
		last := 0.0
		for i := range 101 {
			failing := float64(i) / 100
			share := b.share(failing)
			testsupport.MustTrue(t, share >= last && share <= 1-b.opts.MinProbe+1e-9 && (share <= 0 || failing > b.opts.FailureRatio), "%+v, %v fail: %v are shed after %v", b.opts, failing, share, last)
			last = share
		}
	}
}

func TestBreakerAdmitsAShareAndForgets(t *testing.T) {
	var b breaker
	b.init(options(nil).Breaker)
	for range 1000 {
		b.record(time.Second, 0, true)
	}
	passed := 0
	for range 10000 {
		if b.refuse(time.Second) == nil {
			passed++
		}
	}
	// 1000 are expected, the standard deviation is 30.
	if passed < 800 || passed > 1200 || int(b.shed.Load()) != 10000-passed {
		t.Errorf("%d of 10000 passed and %d were counted as shed, want about 1000 and all others", passed, b.shed.Load())
	}
	for range 100 { // although no request was recorded since
		testsupport.NoError(t, b.refuse(11*time.Second))
	}
	testsupport.Equal(t, b.shedRatio(11*time.Second), 0, "sheds %v after the window")
}

func TestDryRunOfTheBreakerOnlyCounts(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{response(500, "")}}, func(o *Options) { o.Breaker.DryRun = true })
		for range 1000 {
			c.get().want(exchange.ServerError)
		}
		testsupport.AtLeast(t, c.ssp.breaker.wouldShed.Load(), 700, "%d were counted, want about 880")
		testsupport.Equal(t, c.ssp.breaker.shed.Load(), 0, "%d were counted as shed")
		got := c.ssp.Snapshot().BreakerShedRatio
		testsupport.True(t, math.Abs(got-0.9) <= 1e-9, "the ratio is %v, want 0.9", got)
	})
}

func TestFailingSSPIsShedAndTheErrorSaysWhy(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{response(500, "")}}
		c := newClient(t, p, nil)
		for range 1000 {
			if res := c.get(); res.outcome == exchange.BreakerOpen {
				res.wantDetail("in the last 10s failed, and up to 50 % may fail", "ssps[].breaker")
			} else {
				res.want(exchange.ServerError)
			}
		}
		requests, failures := c.ssp.breaker.Tally()
		n := uint64(len(p.requests()))
		testsupport.True(t, n <= 250 && requests == n && failures == n, "%d of 1000 were sent, and %d of %d counted as failures; shed requests must not count", n, failures, requests)
		c.wantIdle()

		// The SSP recovers. The breaker sees this from the requests that it still sends, and in the
		// end it sheds none.
		p.steps = []step{fill()}
		for range 2000 {
			c.get()
			time.Sleep(10 * msec)
		}
		for range 100 {
			c.get().want(exchange.Fill)
		}
	})
}

func TestTheErrorOfTheBreakerNamesTheShareThatCounts(t *testing.T) {
	var b breaker
	b.init(BreakerOptions{Enabled: true, Window: 10 * time.Second, MinRequests: 20, FailureRatio: 0.5, MinProbe: 0.1})
	for i := range 100 {
		b.record(0, 0, true)
		b.record(0, rates.Group(1+i%9), i%10 < 8)
	}
	var err *exchange.Error
	for i := 0; err == nil && i < 100; i++ {
		err = b.refuse(0)
	}
	const want = "180 of the 200 requests to it in the last 10s failed (80 % without the clients whose requests fail most), and up to 50 % may fail"
	testsupport.True(t, err != nil && strings.Contains(err.Error(), want), "%v; want %s", err, want)
}

func TestOutcomesThatCountForTheBreaker(t *testing.T) {
	type want string
	const failed, worked, neither want = "failure", "success", "nothing"
	later := func(e *exchange.Error) step { return after(time.Millisecond, fail(*e)) }
	for _, c := range []struct {
		name    string
		step    step
		acquire error
		timeout time.Duration // the leg's own
		want    want
	}{
		{"fill", fill(), nil, 0, worked},
		{"no bid", response(204, ""), nil, 0, worked},
		{"redirect", response(302, ""), nil, 0, worked},
		{"404", response(404, ""), nil, 0, worked},
		{"429 without Retry-After", response(429, ""), nil, 0, worked},
		{"500", response(500, ""), nil, 0, failed},
		{"503 without Retry-After", response(503, ""), nil, 0, failed},
		{"503 with one that asks for nothing", response(503, "", "Retry-After: 0"), nil, 0, failed},
		{"503 with Retry-After", response(503, "", "Retry-After: 1"), nil, 0, neither},
		{"429 with Retry-After", response(429, "", "Retry-After: 1"), nil, 0, neither},
		{"a timeout after a long deadline", never(), nil, 0, failed},
		{"a timeout that began a little late", never(), nil, 285 * msec, failed},
		{"a timeout after nine tenths of the usual time", never(), nil, 270 * msec, neither},
		{"a timeout after a short deadline", never(), nil, 200 * msec, neither},
		{"no place in time", nil, exchange.ErrDeadlineNotSent, 0, neither},
		{"cannot connect", nil, &refused, 0, failed},
		{"no TLS", nil, &exchange.Error{Outcome: exchange.TLSFailed}, 0, failed},
		{"connection lost", later(&cutMidResponse), nil, 0, failed},
		{"malformed response", later(&exchange.Error{Outcome: exchange.BadResponse, Progress: exchange.MaybeProcessed}), nil, 0, failed},
		{"response over our limit", later(&exchange.Error{Outcome: exchange.ResponseTooLarge, Progress: exchange.MaybeProcessed}), nil, 0, worked},
		{"response over our budget", later(&exchange.Error{Outcome: exchange.Overloaded, Progress: exchange.MaybeProcessed}), nil, 0, neither},
		{"queue full", nil, &exchange.Error{Outcome: exchange.PendingFull}, 0, neither},
		{"queue slow", nil, &exchange.Error{Outcome: exchange.PendingTimeout}, 0, neither},
		{"draining", nil, &exchange.Error{Outcome: exchange.Draining}, 0, neither},
		{"cancelled", later(exchange.ErrCancelled), nil, 0, neither},
	} {
		testsupport.RunBubble(t, c.name, func(t *testing.T) {
			p := &fakePool{steps: []step{c.step}, acquire: func(int, *exchange.Exchange) error { return c.acquire }}
			cl := newClient(t, p, func(o *Options) { o.RetryMax = 0 })
			cl.getIn(t.Context(), c.timeout)
			requests, failures := cl.ssp.breaker.Tally()
			got := neither
			switch {
			case failures == 1 && requests == 1:
				got = failed
			case failures == 0 && requests == 1:
				got = worked
			}
			testsupport.Equal(t, got, c.want, "counts as %s (%d of %d)", failures, requests)
		})
	}
}

func TestTimeoutCountsIfTheSSPHadItsRequestTimeout(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{steps: []step{never()}}, func(o *Options) { o.RequestTimeout = 50 * msec })
		c.get().want(exchange.Deadline)
		_, failures := c.ssp.breaker.Tally()
		testsupport.True(t, failures == 1, "a timeout by timeouts.request does not count")
		r := c.request(exchange.GET)
		r.Deadline = r.Received.Add(20 * msec)
		c.do(r).want(exchange.Deadline)
		requests, _ := c.ssp.breaker.Tally()
		testsupport.True(t, requests == 1, "a timeout that came earlier counts")
	})
}

// Requests before an endpoint was ejected are forgotten, and its late failures are ignored. The failures of the
// endpoints that still serve count.
func TestFailuresOfEndpointsThatAreOutShedNothing(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{response(500, "")}}
		c := newClient(t, p, func(o *Options) {
			o.Breaker = BreakerOptions{Enabled: true, Window: 10 * time.Second, MinRequests: 20, FailureRatio: 0.5, MinProbe: 0.1}
		})
		for range 20 {
			c.get()
		}
		shed := c.ssp.Snapshot().BreakerShedRatio
		testsupport.MustTrue(t, shed >= 0.89, "%v are shed after 20 failures", shed)
		p.left.Add(1)
		p.aside.Store(true)
		for range 40 {
			testsupport.MustEqual(t, c.get().outcome, exchange.ServerError, "a request ended as %v")
		}
		testsupport.Equal(t, c.ssp.Snapshot().BreakerShedRatio, 0, "%v are shed for failures of endpoints that are out")
		p.aside.Store(false)
		for range 20 {
			c.get()
		}
		testsupport.AtLeast(t, c.ssp.Snapshot().BreakerShedRatio, 0.89, "%v are shed after 20 failures of the endpoints that serve")
	})
}

// A pool that sizes itself neither grows nor shrinks while requests are held back before it.
func TestWhatHoldsRequestsBackBeforeThePool(t *testing.T) {
	for _, c := range []struct {
		name string
		step step
		set  func(o *Options)
		want bool
	}{
		{"nothing", fill(), nil, false},
		{"the breaker", response(500, ""), nil, true},
		{"a breaker in its dry run", response(500, ""), func(o *Options) { o.Breaker.DryRun = true }, false},
		{"a pause", response(429, "", "Retry-After: 10"), nil, true},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			k := newClient(t, &fakePool{steps: []step{c.step}}, func(o *Options) {
				o.Breaker = BreakerOptions{Enabled: true, Window: 10 * time.Second, MinRequests: 10, FailureRatio: 0.5, MinProbe: 0.1}
				o.RetryAfterMax, o.RetryAfterShare = time.Minute, 0
				if c.set != nil {
					c.set(o)
				}
			})
			for range 20 {
				k.get()
			}
			testsupport.Equal(t, k.ssp.HoldsBack(time.Now()), c.want, "%[2]s: held back %[1]v", c.name)
		})
	}
}
