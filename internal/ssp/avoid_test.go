package ssp

import (
	"slices"
	"sync"
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// recordAvoided records the endpoints that the attempts avoid. The n-th attempt goes to the n-th of
// endpoints.
func recordAvoided(p *fakePool, endpoints ...string) (avoided func() []string) {
	var mu sync.Mutex
	var list []string
	p.acquire = func(_ int, ex *upstream.Exchange) error {
		mu.Lock()
		defer mu.Unlock()
		ex.Endpoint = endpoints[len(list)]
		list = append(list, ex.Avoid)
		return nil
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

// A retry avoids the endpoint of the attempt before it, and a hedge avoids the endpoint of the late
// attempt.
func TestSecondAttemptsAvoidTheEndpoint(t *testing.T) {
	p := &fakePool{steps: []step{fail(notProcessed), fail(stale), fill()}}
	avoided := recordAvoided(p, "a:80", "b:80", "c:80")
	newClient(t, p, nil).get().want(upstream.Fill)
	if got := avoided(); !slices.Equal(got, []string{"", "a:80", "b:80"}) {
		t.Errorf("the attempts avoid %q", got)
	}
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{never(), after(5*msec, fill())}}
		c := learnt(t, p, nil)
		avoided := recordAvoided(p, "a:80", "b:80")
		c.get().want(upstream.Fill)
		if got := avoided(); !slices.Equal(got, []string{"", "a:80"}) {
			t.Errorf("the hedged attempts avoid %q", got)
		}
	})
}

// An attempt without a place has no endpoint. The next attempt still avoids the last endpoint that
// failed, also if the leg may be hedged.
func TestAttemptAfterAFailedDialAvoidsTheLastEndpoint(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := &fakePool{steps: []step{fail(notProcessed), fill()}}
		c := learnt(t, p, func(o *Options) { o.RetryMax = 2 })
		var avoided []string
		p.acquire = func(n int, ex *upstream.Exchange) error {
			avoided = append(avoided, ex.Avoid)
			if n == 1 {
				return &refused
			}
			ex.Endpoint = "a:80"
			return nil
		}
		c.get().want(upstream.Fill)
		testsupport.True(t, slices.Equal(avoided, []string{"", "a:80", "a:80"}), "the attempts avoid %q", avoided)
	})
}
