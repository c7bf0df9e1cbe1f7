package endpoints

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
)

// An endpoint that fails only POST is ejected although every GET succeeds, once its failures are the
// configured share of its requests. The GETs between them keep it from `consecutive`.
func TestEndpointThatFailsOnlyPOSTIsEjected(t *testing.T) {
	t.Parallel()
	good := e2e.Healthy(t)
	halfGood := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "an ad")
	}))
	defer halfGood.Close()
	name := strings.TrimPrefix(halfGood.URL, "http://")
	ab := e2e.Start(t, fmt.Sprintf(`
ssps: [{name: openx, endpoints: [%q, "%s/bid"], ejection: {base_time: 5m, window: 10m, consecutive: 0}, breaker: {enabled: false}}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, good.URL(), halfGood.URL))
	c := ab.Dial()
	failed := 0
	for range 100 {
		// There are two of each, so that both endpoints get both methods.
		for range 2 {
			c.Get("/fillbuffer").WantFill("openx")
		}
		for range 2 {
			if c.Post("/fillbuffer", "{}").Status != 200 {
				failed++
			}
		}
	}
	if failed < 10 || failed > 20 {
		t.Errorf("%d of 200 POSTs failed, want about 10: half of the endpoint's first min_requests", failed)
	}
	ab.WantMetric(1, "adbuffer_endpoint_state", "endpoint="+name, "state=ejected")
	ab.WantMetric(1, "adbuffer_endpoint_ejections_total", "endpoint="+name)
	ab.WantMetric(float64(failed), "adbuffer_endpoint_requests_total", "endpoint="+name, "outcome=server_error")
}
