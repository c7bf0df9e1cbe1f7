package pool

import (
	"testing"
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var errLocal = &exchange.Error{Outcome: exchange.LocalError, Progress: exchange.NotSent, Detail: "no file is left, by the script"}

// failLocally makes all dials fail because of adbuffer's machine, until the time.
func (s *fakeSSP) failLocally(until time.Time) {
	s.set(func(c dialCall) dialResult {
		if c.at.Before(until) {
			return dialResult{err: errLocal}
		}
		return dialResult{after: msec}
	})
}

// Errors of adbuffer's own machine made the addresses back off and the endpoints be ejected.
func TestLocalErrorsBlameNoAddressAndNoEndpoint(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := endpointsSSP(t, 2)
		var events eventLog
		p := start(t, s, func(o *Options) {
			withWeights(1, 1)(o)
			o.Ejection.Consecutive, o.Ejection.BaseTime, o.BackoffMin, o.BackoffMax = 1, time.Hour, time.Minute, time.Hour
			o.Events = events.add
		})
		over := time.Now().Add(10 * sec)
		s.failLocally(over)
		for time.Now().Before(over) {
			r := ask(t, p, sec)
			pass(100 * msec)
			switch {
			case !r.ended():
				t.Fatal("a request waits for the next dial although the last ones failed")
			case r.err != errLocal:
				t.Fatalf("a request got %v", r.err)
			case r.ex.Redialed != 0:
				t.Fatal("a request paid for a dial that failed because of this machine")
			}
		}
		testsupport.AtMost(t, s.dialCount(), 105, "%d dials in 10 s, want one for each request and a few")
		for range 2 {
			r := acquire(t, p)
			defer r.do()
		}
		all := events.all()
		testsupport.True(t, len(all) == 0, "events: %+v", all)
		for _, e := range p.Snapshot().Endpoints {
			testsupport.True(t, !e.Unreachable && e.State == "enabled", "%s is %s, unreachable: %v", e.Endpoint, e.State, e.Unreachable)
		}
	})
}

// A shortage often ends at once, because adbuffer closes a connection that is idle.
func TestAShortLocalErrorFailsNoRequest(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxIdle = 20, 20 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.failLocally(time.Now().Add(5 * msec))
		all := askAll(t, p, p.Options().MaxPending, sec)
		useAll(all)
		testsupport.AtMost(t, s.dialCount(), 40, "%d dials")
	})
}

// A look-up that fails because of this machine is no failure of the SSP's name.
func TestLookUpsThatFailLocallyBackOffNoFurther(t *testing.T) {
	inBubble(t, func(o *Options) { o.BackoffMin, o.BackoffMax = time.Minute, time.Hour }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.lookup = errLocal
		for range 100 {
			r := ask(t, p, sec)
			pass(100 * msec)
			testsupport.MustTrue(t, r.ended() && r.err == errLocal, "a request: ended %v, %v", r.ended(), r.err)
		}
		testsupport.AtMost(t, s.lookups.Load(), 105, "%d look-ups in 10 s, want one for each request and a few")
		s.locked(func() { s.lookup = nil })
		acquire(t, p).do()
	})
}

// A failed dial for the probe repeats the ejection, unless this machine is the reason.
func TestALocalErrorDoesNotRepeatAnEjection(t *testing.T) {
	withEndpoints(t, 2, func(o *Options) {
		withWeights(1, 1)(o)
		o.Ejection.Consecutive, o.Ejection.BaseTime = 1, time.Minute
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		ejectNow(p, 0)
		s.failLocally(time.Now().Add(70 * sec))
		pass(75 * sec)
		testsupport.Equal(t, probeOf(p, 0), balancer.ProbeReady, "5 s after this machine could dial again, the probe of the endpoint is in state %d")
		testsupport.AtMost(t, s.dialCount(), 30, "%d dials")
	})
}

func TestALocalErrorFailsNoHealthCheck(t *testing.T) {
	inBubble(t, func(o *Options) {
		o.HealthCheck = HealthCheck{Path: "/", Interval: sec, Timeout: sec, Unhealthy: 1, Healthy: 1, Scheme: "http"}
	}, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.failLocally(time.Now().Add(time.Hour))
		pass(time.Minute)
		e := p.Snapshot().Endpoints[0]
		testsupport.True(t, e.State == "enabled" && e.ChecksFailed <= 0, "after a minute, the endpoint is %s, with %d failed checks", e.State, e.ChecksFailed)
		testsupport.AtLeast(t, s.dialCount(), 50, "%d dials for checks")
	})
}

// Requests that arrive after a shortage of 7 s got its error for up to a second.
func TestNoRequestFailsAfterALocalErrorIsOver(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *fakeSSP, p *Pool) {
		over := time.Now().Add(7 * sec)
		s.failLocally(over)
		for time.Now().Before(over) {
			r := ask(t, p, sec)
			pass(sec / 10)
			testsupport.MustTrue(t, r.ended() && r.err == errLocal, "during the shortage a request got %v", r.err)
		}
		for range 5 {
			r := ask(t, p, sec)
			pass(sec / 10)
			testsupport.MustTrue(t, r.ended() && r.err == nil, "after the shortage: ended %v, %v", r.ended(), r.err)
			r.do()
		}
	})
}

// Many requests wait, and max_dials would allow 20 dials at once.
func TestALastingLocalErrorCostsFewDials(t *testing.T) {
	inBubble(t, func(o *Options) { o.MaxConns, o.MaxDials = 40, 20 }, func(t *testing.T, s *fakeSSP, p *Pool) {
		s.failLocally(time.Now().Add(time.Hour))
		for range 2000 {
			ask(t, p, sec)
			pass(5 * msec)
		}
		testsupport.Between(t, s.dialCount(), 100, 300, "%d dials in 10 s")
	})
}
