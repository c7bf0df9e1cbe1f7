//go:build !race

// The series of 50 SSPs take seconds under the race detector, and nothing runs beside them.

package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// estate is a configuration of n SSPs as operators have it: every fourth one over TLS, at a name and with OpenRTB,
// one pipelined, one with three endpoints, one with a spare and health checks, and one for copies.
func estate(n int) string {
	var b strings.Builder
	b.WriteString("server: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\"}\nssps:\n")
	var names []string
	for i := range n {
		endpoints, more := fmt.Sprintf(`"http://127.0.0.1:%d/bid"`, 9000+i), ""
		switch {
		case i%4 == 1:
			endpoints, more = fmt.Sprintf(`"https://ssp%d.example/bid"`, i), ", no_bid_body: openrtb"
		case i == 2:
			endpoints = `"http://127.0.0.1:9201/bid", "http://127.0.0.1:9202/bid", "http://127.0.0.1:9203/bid"`
		case i == 3:
			endpoints, more = `"http://127.0.0.1:9204/bid", {url: "http://127.0.0.1:9205/bid", priority: 1}`, ", health_check: {path: /health}"
		case i == 4:
			more = ", protocol: http1-pipelined"
		case i == 6:
			more = ", hedge: {enabled: true}, qps: {limit: 1000}"
		}
		fmt.Fprintf(&b, "  - {name: ssp%d, endpoints: [%s]%s}\n", i, endpoints, more)
		names = append(names, fmt.Sprintf("ssp%d", i))
	}
	all, last := strings.Join(names[:n-1], ", "), names[n-1]
	fmt.Fprintf(&b, `routes:
  - {name: openrtb, match: {path: /openrtb}, mode: parallel-all, ssps: [%[1]s]}
  - {name: video, match: {path: /video}, mode: waterfall, ssps: [ssp0, ssp1, ssp2], on_error: no_ad, no_ad: vast}
  - {name: default, match: {path: /fillbuffer}, ssps: [%[1]s], client_choice: true, mirror: {ssp: %[2]s, share: 0.1}}
`, all, last)
	return b.String()
}

// Prometheus keeps each series of each replica in memory, so adbuffer exports no series for events that the
// configuration makes impossible.
func TestNoSeriesIsThereForWhatCannotHappen(t *testing.T) {
	for _, row := range []struct {
		name, text string
		most       int
	}{
		{"13 SSPs of all kinds", estate(13), 3100}, {"50 SSPs of all kinds", estate(50), 10800},
		{"13 SSPs over TLS", plain(13, true), 3130}, {"50 SSPs over TLS", plain(50, true), 11500},
	} {
		w := httptest.NewRecorder()
		newOf(t, row.text).metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		n := 0
		for line := range strings.Lines(w.Body.String()) {
			if !strings.HasPrefix(line, "#") {
				n++
			}
		}
		t.Logf("%s: %d series", row.name, n)
		testsupport.True(t, n <= row.most && n >= row.most/2, "%s have %d series, want at most %d", row.name, n, row.most)
	}
}
