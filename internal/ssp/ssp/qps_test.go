package ssp

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"adbuffer/internal/ssp/fleet"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"

	"go.uber.org/zap"
)

// behind sets a bucket's clock to after all times of the test.
var behind = time.Now().Add(24 * time.Hour)

// In any span of time no more requests pass than burst and rate allow, for random limits and
// arrivals.
func TestNoPeriodHasMoreThanBurstAndRate(t *testing.T) {
	for seed := range uint64(10) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		o := QPSOptions{Limit: 1 + 1000*rnd.Float64(), Burst: rnd.IntN(20)}
		var q qps
		q.init(o, behind)
		burst := float64(q.opts.Burst)
		var sent []time.Duration
		now := time.Duration(0)
		for range 1000 {
			if rnd.IntN(3) == 0 {
				now += time.Duration(rnd.ExpFloat64() * 2e9 / o.Limit)
			}
			if q.take(now) == nil {
				sent = append(sent, now)
			}
		}
		for i := range sent {
			for j := i; j < min(i+200, len(sent)); j++ {
				most := burst + o.Limit*(sent[j]-sent[i]).Seconds() + 0.01
				n := float64(j - i + 1)
				if n > most {
					t.Fatalf("%+v: %v within %v, want at most %v", o, n, sent[j]-sent[i], most)
				}
			}
		}
	}
}

func TestDefaultBurstIsATenthOfTheLimitAndAtLeastOne(t *testing.T) {
	for _, c := range []struct {
		o    QPSOptions
		want int
	}{
		{QPSOptions{Limit: 100}, 10},
		{QPSOptions{Limit: 5}, 1},
		{QPSOptions{Limit: 0.1}, 1},
		{QPSOptions{Limit: 100, Burst: 3}, 3},
		{QPSOptions{Limit: 3, Burst: 100}, 100},
	} {
		var q qps
		q.init(c.o, behind)
		for _, at := range []time.Duration{0, 365 * 24 * time.Hour} { // full at the start, and full again
			n := 0
			for q.take(at) == nil {
				n++
			}
			testsupport.True(t, n == c.want, "%+v: %d at once at %v, want %d", c.o, n, at, c.want)
		}
	}
}

func TestNoLimitAdmitsEverything(t *testing.T) {
	var q qps
	q.init(QPSOptions{}, behind)
	for range 1000 {
		testsupport.MustTrue(t, q.refuse(0) == nil && q.take(0) == nil, "refused")
	}
}

func TestRequestOverTheQPSLimitFailsAtOnceAndIsNotSent(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{}
		c := newClient(t, p, func(o *Options) { o.QPS = QPSOptions{Limit: 10, Burst: 2} })
		c.get().want(exchange.Fill)
		c.get().want(exchange.Fill)
		refused := c.get().want(exchange.QPSLimit)
		refused.wantDetail("10 requests a second", "2 at once", "ssps[].qps")
		after := exchange.AsError(refused.err).RetryAfter
		testsupport.True(t, after == 100*msec, "the client may come back after %v, want 100ms", after)
		testsupport.Equal(t, p.acquired, 2, "%d places were acquired: a request over the limit need not wait for a place")
		time.Sleep(100 * msec)
		c.get().want(exchange.Fill)
		testsupport.Equal(t, c.ssp.Snapshot().QPSLimited, 1, "%d were counted")
		c.wantIdle()
	})
}

// After a pause of the process, some requests began long before other requests that have taken
// tokens as of now. The bucket still counts as full.
func TestDelayedRequestIsNotOverTheLimit(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c := newClient(t, &fakePool{}, func(o *Options) { o.QPS = QPSOptions{Limit: 100, Burst: 2} })
		late := c.request(exchange.GET)
		late.Deadline = late.Received.Add(10 * time.Second)
		time.Sleep(time.Second)
		c.get().want(exchange.Fill)
		c.do(late).want(exchange.Fill)
		c.do(late).want(exchange.QPSLimit) // the burst is two
		testsupport.Equal(t, c.ssp.qps.limited.Load(), 1, "%d were counted")
	})
}

// A request takes its token directly before it is sent. So of requests that waited for places
// together, only as many are sent as the limit allows.
func TestQPSLimitCountsSentRequests(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{acquire: func(int, *exchange.Exchange) error { time.Sleep(20 * msec); return nil }}
		c := newClient(t, p, func(o *Options) { o.QPS = QPSOptions{Limit: 1, Burst: 3} })
		results := c.start(10)
		count := map[exchange.Outcome]int{}
		for range 10 {
			count[(<-results).outcome]++
		}
		testsupport.True(t, count[exchange.Fill] == 3 && count[exchange.QPSLimit] == 7, "%v, want 3 fills", count)
		c.wantSent(p, 3)
		testsupport.True(t, p.returned == 7 && c.ssp.qps.limited.Load() == 7, "%d places were released unused and %d counted, want 7", p.returned, c.ssp.qps.limited.Load())
		c.wantIdle()
	})
}

func TestRetryOverTheQPSLimitKeepsTheFirstError(t *testing.T) {
	p := &fakePool{steps: []step{fail(notSent), fill()}}
	c := newClient(t, p, func(o *Options) { o.QPS = QPSOptions{Limit: 0.01, Burst: 1} })
	c.get().want(exchange.ConnLost)
	c.wantSent(p, 1)
	c.wantRetries(nil)
	testsupport.Equal(t, c.ssp.qps.limited.Load(), 1, "%d were counted, want the retry")
}

// fleetOf returns the bucket of a fleet of one replica without Redis. It may send limit divided by
// expected per second.
func fleetOf(t *testing.T, limit float64, burst, expected int) *fleet.Bucket {
	t.Helper()
	return newFleet(t, expected).Bucket("openx", limit, burst)
}

// newFleet returns a fleet of one replica without Redis.
func newFleet(t *testing.T, expected int) *fleet.Fleet {
	t.Helper()
	f := fleet.New(fleet.Options{
		Redis: fleet.Redis{Network: "unix", Address: filepath.Join(t.TempDir(), "absent.sock")}, Prefix: "test", ExpectedReplicas: expected,
		LeaseInterval: 100 * msec, ReplicaTimeout: 2 * time.Second, Log: zap.NewNop(),
	})
	t.Cleanup(func() { f.Close(t.Context()) })
	return f
}

// An SSP counts time like its bucket, whether it was made before or after the bucket.
func TestSentRequestsTakeTheFleetsTokens(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		b := fleetOf(t, 40, 8, 4) // one replica: 10 a second, 2 at once, none at first
		time.Sleep(time.Hour)
		p := &fakePool{steps: []step{fail(notSent), fill(), fill()}}
		c := newClient(t, p, func(o *Options) { o.QPS = QPSOptions{Limit: 40, Burst: 8, Fleet: b} })
		c.get().want(exchange.Fill) // and its retry
		c.wantSent(p, 2)
		c.get().want(exchange.QPSLimit).wantDetail("40 requests a second", "8 at once for all replicas", "ssps[].qps")
		c.wantSent(p, 2)
		time.Sleep(101 * msec)
		c.get().want(exchange.Fill)
		testsupport.Equal(t, c.ssp.Snapshot().QPSLimited, 1, "%d were counted")
		c.wantIdle()
	})
}

func TestDryRunOfTheQPSLimitOnlyCounts(t *testing.T) {
	for over, o := range map[uint64]QPSOptions{
		3: {Limit: 0.001, Burst: 2, DryRun: true},
		5: {Limit: 0.001, Fleet: fleetOf(t, 0.001, 1, 1), DryRun: true}, // the fleet has no token at first
	} {
		c := newClient(t, &fakePool{}, func(all *Options) { all.QPS = o })
		for range 5 {
			c.get().want(exchange.Fill)
		}
		testsupport.Equal(t, c.ssp.qps.limited.Load(), over, "%[2]+v: %[1]d were counted", o)
	}
}

// A reload that changes other settings keeps the bucket. A reload that changes the scope takes a
// new bucket at once.
func TestSuccessorTakesTokensFromTheConfiguredBucket(t *testing.T) {
	b := fleetOf(t, 0.001, 1, 1)
	p := &fakePool{}
	c := newClient(t, p, func(o *Options) { o.QPS = QPSOptions{Limit: 0.001, Fleet: b} })
	c.get().want(exchange.QPSLimit)
	o := c.ssp.opts
	o.RequestTimeout = time.Hour
	c.ssp = c.ssp.With(o)
	c.get().want(exchange.QPSLimit)
	o.QPS.Fleet = nil
	c.ssp = c.ssp.With(o)
	c.get().want(exchange.Fill)
	o.QPS.Fleet = b
	c.ssp = c.ssp.With(o)
	c.get().want(exchange.QPSLimit)
	testsupport.Equal(t, c.ssp.Snapshot().QPSLimited, 3, "%d were counted")
}
