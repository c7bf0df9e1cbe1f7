//go:build !race

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// An SSP has 181 series. Each of them costs allocations for its metric, its labels and its message.
func TestTheAllocationsOfAScrapeAreBounded(t *testing.T) {
	testsupport.Long(t)
	one, many := newOf(t, plain(1, false)), newOf(t, plain(51, false))
	for _, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0", protobuf} {
		allocations := func(a *App) float64 {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", accept)
			r.Header.Set("Accept-Encoding", "gzip")
			return testing.AllocsPerRun(10, func() { a.metrics().ServeHTTP(discard{http.Header{}}, r) })
		}
		n := (allocations(many) - allocations(one)) / 50
		testsupport.True(t, n <= 1950, "%s: %v allocations for each SSP, want at most 1950", accept, n)
	}
}
