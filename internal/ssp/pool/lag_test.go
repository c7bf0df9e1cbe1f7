package pool

import (
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// starving returns a meter for a pool in a bubble, and a function that starves the process for a time.
func starving() (*lag.Meter, func(time.Duration)) {
	var until atomic.Int64
	m := lag.New(func() { time.Sleep(time.Until(time.Unix(0, until.Load()))) })
	return m, func(d time.Duration) { until.Store(time.Now().Add(d).UnixNano()) }
}

// Dials take longer than their timeouts, since this process does not run. The requests wait for them,
// also those that wait for the second dial.
func TestLagFailsNoDialAndNoRequestThatWaits(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t, dialResult{after: 2 * sec})
		m, starve := starving()
		p := start(t, s, func(o *Options) { o.Lag, o.MaxDials = m, 1 })
		all := askAll(t, p, 3, 10*sec)
		starve(6 * sec)
		pass(7 * sec)
		doAll(all)
	})
}

// A dial that lag has extended by the most that is allowed ends, and another one starts. It says
// nothing about the SSP.
func TestDialThatLagEndsIsNoFailure(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t)
		s.set(func(c dialCall) dialResult { return dialResult{after: map[int]time.Duration{0: time.Hour}[c.n]} })
		m, starve := starving()
		p := start(t, s, func(o *Options) { o.Lag = m })
		r := ask(t, p, time.Minute)
		starve(30 * sec)
		pass(time.Minute)
		testsupport.MustTrue(t, r.ended() && r.err == nil && r.took >= lag.MostExtra && r.took <= 2*lag.MostExtra, "the request: ended %v after %v, %v", r.ended(), r.took, r.err)
		r.do()
		e := p.Snapshot().Endpoints[0]
		testsupport.True(t, e.LastDialError == "" && p.Snapshot().LastDialError == "" && failedDials(p, "other") == 0, "the endpoint is %+v", e)
		testsupport.Equal(t, s.dialCount(), 2, "%d dials")
	})
}

// Without lag a dial ends with its timeouts, and a black hole is a failure as always.
func TestDialEndsWithItsTimeoutsWithoutLag(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newFakeSSP(t, dialResult{after: time.Hour})
		m, _ := starving()
		p := start(t, s, func(o *Options) { o.Lag = m })
		r := askOnce(t, p, 10*sec)
		pass(sec)
		r.wantErr(exchange.ConnectFailed, 760*msec)
		testsupport.Equal(t, p.Snapshot().Dialing, 0, "%d dials are under way")
	})
}

// A health check that gets no response while this process does not run says nothing about the endpoint.
func TestLagFailsNoHealthCheck(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		s := newCheckedSSP(t, 2)
		m, starve := starving()
		var late atomic.Bool
		late.Store(true)
		s.fakeSSP.do = func(c *fakeConn, ex *exchange.Exchange) error {
			if late.Load() {
				<-ex.Context.Done()
				return &exchange.Error{Outcome: exchange.Cancelled, Progress: exchange.MaybeProcessed}
			}
			return s.respond(c, ex)
		}
		p := start(t, s.fakeSSP, withChecks(func(o *Options) { withWeights(1, 1)(o); o.Lag = m }))
		starve(2 * time.Minute)
		pass(time.Minute)
		late.Store(false)
		pass(2 * time.Minute)
		for _, e := range p.Snapshot().Endpoints {
			if e.ChecksFailed > 0 || e.ChecksOK < 10 || e.State != "enabled" {
				t.Errorf("%s is %s: %d checks failed and %d succeeded: %s", e.Endpoint, e.State, e.ChecksFailed, e.ChecksOK, e.LastCheckError)
			}
		}
	})
}
