package forwarding

import (
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestARequestGets504AtItsDeadline(t *testing.T) {
	t.Parallel()
	testsupport.Long(t)
	s := e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := e2e.Start(t, "deadline: {default: 900ms, max: 1800ms}\n"+e2e.Single(s.URL()))
	c := ab.Dial()
	want := e2e.Refusal{Status: 504, Reason: "deadline", SSP: "openx", Names: []string{"deadline"}}
	const late = 19 * time.Second // a deadline of 20 s, the harness's or a row's, is not in force
	for _, row := range []struct {
		name, method, body string
		fields             []string
		atLeast            time.Duration // the SSP gets the deadline less reserve (5ms)
	}{
		{"deadline.default", "GET", "", nil, 895 * time.Millisecond},
		{"the header", "GET", "", []string{"X-Adbuffer-Timeout-Ms: 600"}, 595 * time.Millisecond},
		{"tmax", "POST", `{"id":"1","tmax":600}`, nil, 595 * time.Millisecond},
	} {
		var took time.Duration // from before the request was sent: at least as long as adbuffer waited
		ab.WantRefusal(row.name, want, func() *e2e.Response {
			began := time.Now()
			a := c.Do(row.method, "/fillbuffer", row.body, row.fields...)
			took = time.Since(began)
			return a
		})
		testsupport.True(t, took >= row.atLeast && took <= late, "%s: the SSP had %v, want at least %v and at most %v", row.name, took, row.atLeast, late)
		t.Logf("%-32s asked %v, response after %v", row.name, row.atLeast, took.Round(time.Millisecond))
	}
	ab.WantMetric(3, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=deadline")
}

func TestTimeoutsRequestEndsARequestBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	s := e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	// The deadline is longer than the test waits for a response.
	ab := e2e.Start(t, e2e.Single(s.URL(), "timeouts: {request: 50ms}"), "ADBUFFER_DEADLINE_DEFAULT=10m", "ADBUFFER_DEADLINE_MAX=10m")
	began := time.Now()
	ab.WantRefusal("stalled SSP", e2e.Refusal{Status: 504, Reason: "deadline", SSP: "openx", Names: []string{"timeouts.request"}},
		func() *e2e.Response { return ab.Get("/fillbuffer") })
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("the request ended after %v, want at least 50ms", took)
	}
}
