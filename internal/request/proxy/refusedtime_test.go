package proxy_test

import (
	"testing"
	"time"

	"adbuffer/internal/request/route"
)

// A refused request has no start, and must not take over the start of the previous request in the same
// memory.
func TestARequestThatIsRefusedUnreadTookNoTime(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	for range 20 {
		m.do("GET", "/fill", "A: 1")
		time.Sleep(time.Millisecond)
		m.do("GET", "/nowhere", "A: 1")
	}
	for _, f := range m.gather() {
		for _, s := range f.Metric {
			if h := s.Histogram; h != nil && len(s.Label) > 0 && s.Label[0].GetValue() == "none" && (h.GetSampleCount() != 20 || h.GetSampleSum() != 0) {
				t.Errorf("%d requests without a route took %v s, want 20 and 0", h.GetSampleCount(), h.GetSampleSum())
			}
		}
	}
}
