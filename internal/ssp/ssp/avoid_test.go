package ssp

import (
	"slices"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// leadTo makes the n-th attempt go to the n-th of endpoints.
func leadTo(p *fakePool, endpoints ...string) {
	p.acquire = func(n int, ex *exchange.Exchange) error {
		ex.Endpoint = endpoints[n]
		return nil
	}
}

// avoided returns the endpoints that the attempts avoided.
func (p *fakePool) avoided() (all []string) {
	for _, r := range p.requests() {
		all = append(all, r.avoided)
	}
	return all
}

// A retry avoids the endpoint of the attempt before it, and a hedge avoids the endpoint of the late
// attempt.
func TestSecondAttemptsAvoidTheEndpoint(t *testing.T) {
	p := &fakePool{steps: []step{fail(notProcessed), fail(stale), fill()}}
	leadTo(p, "a:80", "b:80", "c:80")
	newClient(t, p, nil).get().want(exchange.Fill)
	testsupport.True(t, slices.Equal(p.avoided(), []string{"", "a:80", "b:80"}), "the attempts avoid %q", p.avoided())
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{never(), after(5*msec, fill())}}
		c := learnt(t, p, nil)
		leadTo(p, "a:80", "b:80")
		c.get().want(exchange.Fill)
		testsupport.True(t, slices.Equal(p.avoided(), []string{"", "a:80"}), "the hedged attempts avoid %q", p.avoided())
	})
}

// An attempt without a place has no endpoint. The next attempt still avoids the last endpoint that
// failed, also if the leg may be hedged.
func TestAttemptAfterAFailedDialAvoidsTheLastEndpoint(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{fail(notProcessed), fill()}}
		c := learnt(t, p, func(o *Options) { o.RetryMax = 2 })
		var avoided []string
		p.acquire = func(n int, ex *exchange.Exchange) error {
			avoided = append(avoided, ex.Avoid)
			if n == 1 {
				return &refused
			}
			ex.Endpoint = "a:80"
			return nil
		}
		c.get().want(exchange.Fill)
		testsupport.True(t, slices.Equal(avoided, []string{"", "a:80", "a:80"}), "the attempts avoid %q", avoided)
	})
}
