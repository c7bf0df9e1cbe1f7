package limits

import (
	"strconv"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
)

func TestRequestsOverQPSAreRefused(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "qps: {limit: 0.01, burst: 2}"))
	c := ab.Dial()
	began := time.Now()
	c.Get("/fillbuffer").WantFill("openx")
	c.Post("/fillbuffer", "{}").WantFill("openx")
	want := e2e.Refusal{Status: 503, Reason: "qps_limit", SSP: "openx", Names: []string{"0.01", "qps"}}
	ab.WantRefusal("a third", want, func() *e2e.Response { return c.Get("/fillbuffer") })
	e2e.WantRequests(t, s, 2)
	ab.WantMetric(1, "adbuffer_qps_limited_total", "ssp=openx")
	after, err := strconv.Atoi(c.Get("/fillbuffer").Header("Retry-After"))
	if passed := time.Since(began); err != nil || after > 100 || float64(after) < 100-passed.Seconds() {
		t.Errorf("Retry-After is %d (%v), with a request in 100 s, %v after the first request", after, err, passed)
	}
}
