package fleet

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

const ms = time.Millisecond

func options() *Options {
	return &Options{ExpectedReplicas: 4, LeaseInterval: 20 * ms, ReplicaTimeout: 2 * time.Second}
}

// grant makes one call, whose reply grants this many tokens.
func (b *Bucket) grant(now time.Duration, tokens int, share float64) leaseCall {
	a := b.nextCall(now, options())
	b.apply(&a, leaseReply{granted: tokens, share: share, alive: 2}, now)
	return a
}

func takeAll(b *Bucket, now time.Duration) (n int) {
	for b.Take(now) {
		n++
	}
	return n
}

// A reload that changes the limit changes the share at once, also without a reply of Redis.
func TestAnotherLimitChangesTheShareAtOnce(t *testing.T) {
	b := newBucket("openx", settings{100, 10}, 4)
	b.change(settings{40, 10})
	testsupport.Equal(t, b.Share(), 10, "the share is %v, want a quarter of 40")
}

func TestLeasedTokensEndWithTheirLease(t *testing.T) {
	b := newBucket("openx", settings{100, 10}, 4)
	a := b.grant(time.Second, 5, 50)
	end := lease(b.lease.Load()).end()
	testsupport.True(t, end <= time.Second+a.valid && end >= time.Second+a.valid-2*ms, "the lease holds until %v, want %v", end, time.Second+a.valid)
	testsupport.True(t, b.Has(end-1) && b.Take(end-1), "no token while the lease holds")
	testsupport.True(t, !b.Has(end) && !b.Take(end), "a token of a lease that has ended")
	// From then on tokens come at its own share, starting with none.
	testsupport.Equal(t, takeAll(b, end+19*ms), 0, "%d tokens after 19 ms at 50 a second")
	testsupport.Equal(t, takeAll(b, end+100*ms), 5, "%d tokens after 100 ms at 50 a second")
	testsupport.Equal(t, takeAll(b, end+time.Hour), 5, "%d tokens after an hour, want half of the burst")
}

func TestReturnedTokensAreNotTaken(t *testing.T) {
	b := newBucket("openx", settings{1000, 100}, 4)
	b.grant(time.Second, 60, 500)
	a := b.nextCall(time.Second+20*ms, options()) // without traffic the reserve is enough
	testsupport.MustTrue(t, a.keep+a.giveBack == 60 && a.giveBack != 0, "%d kept and %d returned of 60", a.keep, a.giveBack)
	n := takeAll(b, time.Second+21*ms)
	testsupport.True(t, n == a.keep, "%d were taken, want the %d kept", n, a.keep)
}

func TestDemandIsRequestedAndFades(t *testing.T) {
	b := newBucket("openx", settings{1000, 100}, 4)
	b.grant(time.Second, 10, 500)
	now := time.Second
	for range 20 {
		b.Take(now) // the last ten get no token
	}
	testsupport.True(t, b.due(now, options()), "demand is not reported")
	a := b.nextCall(now+20*ms, options())
	testsupport.True(t, a.need >= 20 && a.want > a.need && a.want <= 100, "it asks for %d, and %d with the reserve, after 20 requests", a.need, a.want)
	b.apply(&a, leaseReply{granted: a.want, share: 500, alive: 2}, now+20*ms)
	calls := 0
	for now += 20 * ms; b.due(now, options()); now += 20 * ms {
		a := b.nextCall(now, options())
		b.apply(&a, leaseReply{share: 500, alive: 2}, now)
		if calls++; calls > 100 {
			t.Fatal("it continues to call without traffic")
		}
	}
	testsupport.AtMost(t, lease(b.lease.Load()).tokens(), 100/8+1, "%d tokens are held without traffic")
	testsupport.True(t, b.due(now+options().heartbeat(), options()), "it does not report that it is alive")
}

// Concurrent changes of one word by many requests and the caller lose nothing.
func TestEachTokenIsTakenOnce(t *testing.T) {
	b := newBucket("openx", settings{1e6, 1e5}, 1)
	b.grant(time.Second, 0, 1) // from here on a lease is valid
	var taken atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				if b.Take(time.Second) {
					taken.Add(1)
				}
			}
		})
	}
	granted, back := 0, 0
	for i := range 2000 {
		a := b.nextCall(time.Second, options())
		back += a.giveBack
		b.apply(&a, leaseReply{granted: i % 7, share: 1, alive: 1}, time.Second)
		granted += i % 7
	}
	stop.Store(true)
	wg.Wait()
	left := lease(b.lease.Load()).tokens()
	testsupport.True(t, int(taken.Load()) == granted-back-left, "%d taken of %d granted, %d returned and %d left", taken.Load(), granted, back, left)
	testsupport.Equal(t, b.Share(), 1, "share %v")
}

// For any order of time, requests, responses and lost responses, a bucket passes only the granted
// tokens and those of its share.
func FuzzBucket(f *testing.F) {
	f.Add([]byte{0, 3, 1, 2, 2, 9, 4, 1, 1, 1, 8, 200, 0, 5}, uint16(100), uint8(10))
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		b := make([]byte, 200)
		for i := range b {
			b[i] = byte(rnd.UintN(256))
		}
		f.Add(b, uint16(rnd.UintN(65536)), uint8(rnd.UintN(256)))
	}
	f.Fuzz(func(t *testing.T, steps []byte, limit uint16, burst uint8) {
		s := settings{float64(limit) + 1, int(burst) + 1}
		b := newBucket("openx", s, 4)
		now := time.Duration(0)
		granted, taken, alone, calls := 0, 0, 0.0, 0
		share, last := s.limit/4, now // its own rate, and the start of it
		for i := 0; i+1 < len(steps); i += 2 {
			n := int(steps[i+1])
			if !b.Connected(now) {
				alone += share * (now - last).Seconds()
			}
			last = now
			switch steps[i] % 4 {
			case 0:
				step := time.Duration(n*n) * 50 * time.Microsecond
				if end := lease(b.lease.Load()).end(); now < end && now+step > end {
					alone += share * (now + step - end).Seconds()
					last = now + step
				}
				now += step
			case 1:
				for range n {
					has := b.Has(now)
					if took := b.Take(now); took != has {
						t.Fatalf("Has says %v, and Take %v", has, took)
					} else if took {
						taken++
					}
				}
			default:
				a := b.nextCall(now, options())
				testsupport.MustTrue(t, a.keep >= 0 && a.giveBack >= 0 && a.want >= a.need && a.want >= 1 && a.keep <= a.want, "%+v", a)
				if steps[i]%4 == 3 {
					continue // the response is lost
				}
				g := min(n, max(0, a.want-a.keep))
				share = s.limit * float64(n) / 255
				b.apply(&a, leaseReply{granted: g, share: share, alive: 1 + n%3}, now)
				granted, calls = granted+g, calls+1
			}
		}
		// Each time the lease ends, the pace starts with no tokens.
		most := float64(granted) + alone + 1
		testsupport.True(t, float64(taken) <= most+1e-6*most, "%d taken, with %d granted and %.2f at its own pace", taken, granted, alone)
	})
}
