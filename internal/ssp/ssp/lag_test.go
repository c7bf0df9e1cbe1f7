package ssp

import (
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/machine/lag"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// starving returns a meter for an SSP in a bubble, and a function that starves the process for a time.
func starving(t *testing.T) (*lag.Meter, func(time.Duration)) {
	var until atomic.Int64
	m := lag.New(func() { time.Sleep(time.Until(time.Unix(0, until.Load()))) })
	m.Start()
	t.Cleanup(func() {
		m.Stop()
		time.Sleep(time.Minute) // its goroutine may still starve
	})
	return m, func(d time.Duration) { until.Store(time.Now().Add(d).UnixNano()) }
}

// The SSP never responds. If this process did not run for much of the time, that may be the reason; if
// it was only busy, the SSP is to blame.
func TestATimeoutUnderLagIsNotTheSSPsFailure(t *testing.T) {
	for name, c := range map[string]struct {
		lag  time.Duration
		want exchange.Result
	}{
		"none":                  {0, exchange.Failure},
		"a little":              {60 * msec, exchange.Failure},
		"much":                  {150 * msec, exchange.Neutral},
		"to the end and beyond": {time.Second, exchange.Neutral},
	} {
		testsupport.Bubble(t, func(t *testing.T) {
			m, starve := starving(t)
			p := &fakePool{steps: []step{never()}}
			s := newClient(t, p, func(o *Options) { o.Lag = m })
			starve(c.lag)
			s.get().want(exchange.Deadline)
			testsupport.Equal(t, p.ended[0], c.want, "lag %[2]s: the result for the endpoint is %[1]v", name)
			_, failures := s.ssp.breaker.Tally()
			testsupport.True(t, failures > 0 == (c.want == exchange.Failure), "lag %s: %d failures for the breaker, and the result is %v", name, failures, c.want)
		})
	}
}
