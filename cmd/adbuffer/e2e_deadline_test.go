package main

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

func TestARequestIsAnswered504AtItsDeadline(t *testing.T) {
	t.Parallel()
	s := failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := start(t, "deadline: {default: 150ms, max: 400ms}\n"+single(s.URL()),
		"ADBUFFER_DEADLINE_DEFAULT=150ms", "ADBUFFER_DEADLINE_MAX=400ms")
	c := ab.dial()
	want := refusal{status: 504, reason: "deadline", ssp: "openx", names: []string{"deadline"}}
	for _, row := range []struct {
		name, method, body string
		fields             []string
		atLeast            time.Duration // the SSP is given the deadline less reserve (5ms)
	}{
		{"deadline.default", "GET", "", nil, 145 * time.Millisecond},
		{"the header", "GET", "", []string{"X-Adbuffer-Timeout-Ms: 60"}, 55 * time.Millisecond},
		{"the header, above the default", "GET", "", []string{"X-Adbuffer-Timeout-Ms: 250"}, 245 * time.Millisecond},
		{"deadline.max", "GET", "", []string{"X-Adbuffer-Timeout-Ms: 600000"}, 395 * time.Millisecond},
		{"tmax", "POST", `{"id":"1","tmax":60}`, nil, 55 * time.Millisecond},
		{"tmax, above the default", "POST", `{"id":"1","tmax":250}`, nil, 245 * time.Millisecond},
		{"the smaller of both, tmax", "POST", `{"tmax":60}`, []string{"X-Adbuffer-Timeout-Ms: 20000"}, 55 * time.Millisecond},
		{"the smaller of both, the header", "POST", `{"tmax":20000}`, []string{"X-Adbuffer-Timeout-Ms: 60"}, 55 * time.Millisecond},
		{"a tmax that is no top-level key", "POST", `{"a":{"tmax":60},"b":"\"tmax\":60"}`, nil, 145 * time.Millisecond},
		{"a tmax that is no number", "POST", `{"tmax":"60"}`, nil, 145 * time.Millisecond},
		{"a tmax of 0", "POST", `{"tmax":0}`, nil, 145 * time.Millisecond},
		{"a negative tmax", "POST", `{"tmax":-5}`, nil, 145 * time.Millisecond},
		{"a tmax with a fraction", "POST", `{"tmax":60.5}`, nil, 145 * time.Millisecond},
		{"an absurd tmax", "POST", `{"tmax":600001}`, nil, 145 * time.Millisecond},
		{"a tmax that overflows", "POST", `{"tmax":18446744073709551676}`, nil, 145 * time.Millisecond},
		{"a tmax of a compressed body", "POST", `{"tmax":60}`, []string{"Content-Encoding: gzip"}, 145 * time.Millisecond},
	} {
		var took time.Duration // from before the request was sent: never less than adbuffer waited
		ab.wantRefusal(row.name, want, func() *answer {
			began := time.Now()
			a := c.do(row.method, "/fillbuffer", row.body, row.fields...)
			took = time.Since(began)
			return a
		})
		if took < row.atLeast {
			t.Errorf("%s: the SSP was given %v, want %v", row.name, took, row.atLeast)
		}
		t.Logf("%-32s asked %v, answered after %v", row.name, row.atLeast, took.Round(time.Millisecond))
	}
	ab.wantMetric(16, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=deadline")
}

func TestADeadlineHeaderThatIsNoNumberIsABadRequest(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()))
	c := ab.dial()
	want := refusal{status: 400, reason: "bad_request", names: []string{"X-Adbuffer-Timeout-Ms", "600000"}}
	for _, v := range []string{"", "0", "-1", "+5", "1e3", "100ms", "10.5", "0x10", "600001", "99999999999999999999", "5 5", "٣"} {
		ab.wantRefusal(fmt.Sprintf("%q", v), want, func() *answer { return c.get("/fillbuffer", "X-Adbuffer-Timeout-Ms: "+v) })
	}
	ab.wantRefusal("two of them", want, func() *answer {
		return c.get("/fillbuffer", "X-Adbuffer-Timeout-Ms: 100", "X-Adbuffer-Timeout-Ms: 100")
	})
	wantAsked(t, s, 0)
	c.get("/fillbuffer", "X-Adbuffer-Timeout-Ms: 600000").wantFill("openx")
}

func TestTooLittleTimeIsAnswered504AtOnceAndSendsNothing(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, "deadline: {reserve: 40ms, min_budget: 60ms}\n"+single(s.URL()))
	c := ab.dial()
	want := refusal{status: 504, reason: "deadline", names: []string{"deadline.reserve", "deadline.min_budget"}}
	for _, ms := range []int{1, 39, 40, 99} {
		ab.wantRefusal(fmt.Sprintf("%d ms", ms), want, func() *answer { return c.get("/fillbuffer", fmt.Sprintf("X-Adbuffer-Timeout-Ms: %d", ms)) })
	}
	wantAsked(t, s, 0)
	c.get("/fillbuffer", "X-Adbuffer-Timeout-Ms: 20000").wantFill("openx")
}

func TestTimeoutsRequestEndsARequestBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	s := failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := start(t, single(s.URL(), "timeouts: {request: 50ms}"))
	a := ab.wantRefusal("stalled SSP", refusal{status: 504, reason: "deadline", ssp: "openx", names: []string{"timeouts.request"}},
		func() *answer { return ab.get("/fillbuffer") })
	if a.took < 50*time.Millisecond || a.took > 15*time.Second {
		t.Errorf("answered after %v, want about 50ms, not the deadline's 20s", a.took)
	}
}
