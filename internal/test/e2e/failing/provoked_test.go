package failing

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// provokable responds with status to requests whose query says so, and to all requests once broken is
// set. Such responses have a Retry-After unless the status is 500.
type provokable struct {
	*httptest.Server
	status int
	broken atomic.Bool
}

func startProvokable(t *testing.T, status int) *provokable {
	p := &provokable{status: status}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.broken.Load() && !strings.Contains(r.URL.RawQuery, "provoke") {
			fmt.Fprint(w, "an ad")
			return
		}
		if status != 500 {
			w.Header().Set("Retry-After", "30")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(p.Close)
	return p
}

// from is the header field with which a proxy names the n-th client.
func from(n int) string { return fmt.Sprintf("X-Forwarded-For: 198.51.100.%d", 1+n) }

// One of ten clients provokes failures with most of the requests. No request of the others is shed or
// refused, and no endpoint is ejected.
func TestFailuresThatAClientProvokesHurtNoOthers(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 503, 429} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			a, b := startProvokable(t, status), startProvokable(t, status)
			ab := e2e.Start(t, fmt.Sprintf(`
ssps: [{name: openx, endpoints: ["%s/bid", "%s/bid"]}]
routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]
`, a.URL, b.URL))
			c := ab.Dial()
			for n := range 90 {
				c.Get("/fillbuffer", from(1+n%9)).WantFill("openx")
			}
			refused := 0
			for range 30 {
				for range 20 {
					c.Get("/fillbuffer?provoke", from(0))
				}
				for n := range 9 {
					if c.Get("/fillbuffer", from(1+n)).Status != 200 {
						refused++
					}
				}
			}
			testsupport.True(t, refused <= 0, "%d of 270 requests of the others were refused", refused)
			ab.WantMetric(0, "adbuffer_breaker_shed_ratio", "ssp=openx")
			ab.WantMetric(0, "adbuffer_ssp_retry_after_responses_total", "effect=paused")
			for _, s := range []*provokable{a, b} {
				ab.WantMetric(0, "adbuffer_endpoint_ejections_total", "endpoint="+s.Listener.Addr().String())
			}
		})
	}
}
