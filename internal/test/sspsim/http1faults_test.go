package sspsim

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func withFaults(f Faults) Behaviour { return Behaviour{Faults: f} }

// wantFault checks that the fault was counted once.
func (s *SSP) wantFault(t testing.TB, key string) {
	t.Helper()
	s.await(t, "fault "+key, func(c Counters) bool { return c.Faults[key] == 1 })
	if n := s.Counters(); len(n.Faults) != 1 {
		t.Errorf("faults %v, want %s alone", n.Faults, key)
	}
}

func TestStatusFaultCarriesRetryAfter(t *testing.T) {
	for _, v := range []struct {
		status Status
		code   int
		retry  string
	}{
		{Status{}, 503, ""},
		{Status{Code: 429, RetryAfter: Duration(1500 * time.Millisecond)}, 429, "2"},
		{Status{Code: 302}, 302, ""},
		{Status{Code: 304}, 304, ""},
		{Status{Code: 204, RetryAfter: Duration(time.Minute)}, 204, "60"},
	} {
		v.status.Chance = Always
		s := startWith(t, Behaviour{Response: Response{Echo: true}, Faults: Faults{Status: v.status}})
		c := dial(t, s)
		resp, body := c.ask("me")
		if resp.StatusCode != v.code || resp.Header.Get("Retry-After") != v.retry || (body == "") != (v.code == 204 || v.code == 304) || resp.Header.Get("X-Echo-Cb") != "me" {
			t.Errorf("%+v: %d, %v, %q", v.status, resp.StatusCode, resp.Header, body)
		}
		c.ask("again")
	}
	c := dial(t, startWith(t, withFaults(Faults{Status: Status{Chance: Always, RetryAfter: Duration(time.Hour), RetryAfterDate: true}})))
	resp, _ := c.ask("me")
	if at, err := http.ParseTime(resp.Header.Get("Retry-After")); err != nil || time.Until(at) < 58*time.Minute || time.Until(at) > time.Hour {
		t.Errorf("Retry-After %q (%v), want a date in an hour", resp.Header.Get("Retry-After"), err)
	}
}

func TestEveryNthRequestFailsAcrossConnections(t *testing.T) {
	s := startWith(t, withFaults(Faults{Status: Status{Chance: Every(3)}}))
	a, b := dial(t, s), dial(t, s)
	for i := 1; i <= 12; i++ {
		c := a
		if i%2 == 0 {
			c = b
		}
		c.get("x")
		want := 200
		if i%3 == 0 {
			want = 503
		}
		if resp, _ := c.response("GET"); resp.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, resp.StatusCode, want)
		}
	}
}

func TestShareOfTheRequestsFailsTheSameWayForOneSeed(t *testing.T) {
	run := func(seed uint64) (pattern string) {
		s := start(t, Options{Seed: seed, Behaviour: withFaults(Faults{Status: Status{Chance: Share(0.3)}})})
		c := dial(t, s)
		for range 200 {
			resp, _ := c.ask("x")
			pattern += resp.Status[:1]
		}
		return pattern
	}
	a := run(7)
	testsupport.Between(t, strings.Count(a, "5"), 30, 95, "%d of 200 requests failed, want about 60")
	testsupport.Equal(t, run(7), a, "the same seed failed other requests: %v")
	testsupport.True(t, run(8) != a, "another seed failed the same requests")
}
