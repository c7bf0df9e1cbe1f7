package sample

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// add offers a request to s as the proxy does.
func add(s *Sample, q *Request) {
	if m := s.Draw(time.Now()); m != nil {
		s.Keep(m, q)
	}
}

func numbered(i int) *Request { return &Request{ID: strconv.Itoa(i)} }

func TestEachMinuteHasItsShareWhateverItsRate(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		budget := exchange.NewBudget(1 << 30)
		s := New(Limits{Requests: 1000, MaxAge: 10 * time.Minute, MaxBytes: 1 << 20}, budget)
		for minute := range 10 {
			rate := 30
			if minute == 3 {
				rate = 5000
			}
			for i := range rate {
				add(s, numbered(i))
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait() // for the timer that drops it
		strata := s.Strata(time.Now())
		testsupport.MustEqual(t, len(strata), 9, "%d minutes: the first one is ten minutes old")
		for i, m := range strata {
			seen, kept := uint64(30), 30
			if i == 2 {
				seen, kept = 5000, 100
			}
			testsupport.True(t, m.Seen == seen && len(m.Requests) == kept && m.Length == time.Minute, "minute %d: %d of %d in %v", i, len(m.Requests), m.Seen, m.Length)
		}
		requests, bytes := s.Held()
		testsupport.True(t, requests == 8*30+100 && bytes == budget.Used() && bytes > 0, "%d requests, %d bytes, %d in the budget", requests, bytes, budget.Used())

		time.Sleep(10 * time.Minute)
		synctest.Wait()
		requests, bytes = s.Held()
		testsupport.True(t, requests == 0 && bytes == 0 && budget.Used() == 0, "after max_age without requests: %d requests, %d bytes, %d in the budget", requests, bytes, budget.Used())
	})
}

// Each of 1000 requests is kept with a probability of 1/100. A chi-squared test over ten groups of 100 requests fails at
// 35, once in 17,000 runs.
func TestEveryRequestOfAMinuteIsKeptWithTheSameProbability(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		const runs = 400
		var kept [10]float64
		for range runs {
			s := New(Limits{Requests: 50, MaxAge: 5 * time.Minute, MaxBytes: 1 << 20}, exchange.NewBudget(1<<30))
			for i := range 1000 {
				add(s, numbered(i))
			}
			for _, q := range s.Strata(time.Now())[0].Requests {
				i, err := strconv.Atoi(q.ID)
				testsupport.NoError(t, err)
				kept[i/100]++
			}
			s.Close()
		}
		chi := 0.0
		for _, n := range kept {
			chi += (n - runs) * (n - runs) / runs
		}
		testsupport.True(t, chi < 35, "groups of 100 requests were kept %v times, want about %d", kept, runs)
	})
}

// A request of 60 KB and one of 10 bytes are kept with about the same probability, although only some of the large ones fit.
func TestBytesAreBoundedWithoutPreferringSmallRequests(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		large, total, body := 0, 0, make([]byte, 60<<10)
		for range 300 {
			budget := exchange.NewBudget(1) // the sample bounds itself
			s := New(Limits{Requests: 500, MaxAge: 5 * time.Minute, MaxBytes: 5 << 20}, budget)
			for i := range 400 {
				q := numbered(i)
				if i%4 == 0 {
					q.Body = body
				}
				add(s, q)
				testsupport.MustTrue(t, budget.Used() <= 1<<20, "%d bytes are held, a minute may have 1 MiB", budget.Used())
			}
			for _, q := range s.Strata(time.Now())[0].Requests {
				total++
				if len(q.Body) > 0 {
					large++
				}
			}
			s.Close()
			testsupport.MustEqual(t, budget.Used(), 0, "%d bytes stay in the budget after Close")
		}
		share := float64(large) / float64(total)
		testsupport.Between(t, share, 0.22, 0.28, "%.3f of the kept requests are large, and 0.25 of all")
	})
}

func TestBoundsOfUnusualSettings(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		for _, o := range []Limits{
			{Requests: 1, MaxAge: time.Hour, MaxBytes: 1 << 20},
			{Requests: 7, MaxAge: 24 * time.Hour, MaxBytes: 1 << 20},
			{Requests: 61, MaxAge: time.Hour, MaxBytes: 1 << 20},
			{Requests: 1_000_000, MaxAge: 5 * time.Minute, MaxBytes: 1 << 20},
		} {
			budget, body := exchange.NewBudget(1<<30), make([]byte, MaxBody)
			s := New(o, budget)
			for i := range 100 {
				for range 5 {
					q := numbered(i)
					q.Body = body
					add(s, q)
				}
				requests, bytes := s.Held()
				testsupport.MustTrue(t, requests <= o.Requests && bytes <= int64(o.MaxBytes) && bytes == budget.Used(), "%+v: %d requests, %d bytes", o, requests, bytes)
				time.Sleep(o.MaxAge / 50)
			}
			s.Close()
		}
		testsupport.True(t, New(Limits{MaxAge: time.Hour, MaxBytes: 1 << 20}, nil) == nil, "requests: 0 makes a sample")
	})
}

func TestClearAndClose(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		budget := exchange.NewBudget(1 << 30)
		s := New(Limits{Requests: 100, MaxAge: 5 * time.Minute, MaxBytes: 1 << 20}, budget)
		pending := s.Draw(time.Now())
		add(s, numbered(1))
		s.Clear()
		s.Keep(pending, numbered(2)) // its minute has gone
		requests, _ := s.Held()
		testsupport.True(t, requests == 0 && budget.Used() == 0, "%d requests and %d bytes after Clear", requests, budget.Used())
		add(s, numbered(3))
		requests, _ = s.Held()
		testsupport.Equal(t, requests, 1, "%d requests after Clear and one more")
		s.Close()
		add(s, numbered(4))
		requests, _ = s.Held()
		testsupport.True(t, requests == 0 && budget.Used() == 0, "%d requests and %d bytes after Close", requests, budget.Used())
		var off *Sample
		off.Clear()
		off.Close()
		requests, bytes := off.Held()
		testsupport.True(t, requests == 0 && bytes == 0 && off.Strata(time.Now()) == nil, "a nil sample has requests")
	})
}

func TestDrawingAllocatesNothing(t *testing.T) {
	s := New(Limits{Requests: 5, MaxAge: 24 * time.Hour, MaxBytes: 1 << 20}, exchange.NewBudget(1<<30))
	defer s.Close()
	now := time.Now()
	got := testing.AllocsPerRun(1000, func() { s.Draw(now) })
	testsupport.Equal(t, got, 0, "%v allocations for each request")
}

// A body is at most a sixteenth of a minute's bytes, and at most 64 KiB.
func TestTheLongestBodyFollowsFromTheBytesOfAMinute(t *testing.T) {
	for _, c := range []struct {
		limits Limits
		want   int
	}{
		{Limits{10_000, time.Hour, 33_554_432}, 34_952},
		{Limits{10_000, time.Hour, 1 << 20}, 1092},
		{Limits{10_000, 5 * time.Minute, 33_554_432}, 65_536},
		{Limits{1, time.Hour, 1 << 20}, 65_536},
	} {
		testsupport.Equal(t, New(c.limits, exchange.NewBudget(1<<20)).MaxBody(), c.want, "the longest body has %d bytes")
	}
}
