package forwarding

import (
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestRedirectsAreForwardedAndNotFollowed(t *testing.T) {
	t.Parallel()
	s := e2e.SSPWith(t, sspsim.Behaviour{
		Response: sspsim.Response{Headers: []sspsim.Field{{Name: "Location", Value: "http://127.0.0.1:1/elsewhere"}}},
		Faults:   sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 302}},
	})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	a := ab.Get("/fillbuffer").WantStatus("redirect", 302).WantSource("ssp/openx")
	testsupport.Equal(t, a.Header("Location"), "http://127.0.0.1:1/elsewhere", "Location %q")
	e2e.WantRequests(t, s, 1)
	ab.WantMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=redirect")
}
