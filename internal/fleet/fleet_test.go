package fleet

import (
	"testing"
	"time"

	"adbuffer/internal/redistest"
)

const limit, burst = 2000.0, 200

// most is how many all replicas may send in a span: the promise of the package.
func most(limit float64, burst, replicas int, span time.Duration) float64 {
	return limit*span.Seconds() + float64(max(burst, 2*replicas))
}

func sum(all []*member) (sent float64) {
	for _, m := range all {
		sent += float64(m.sent.Load())
	}
	return sent
}

func TestReplicasUnderOverloadShareTheLimitEvenlyAndKeepToIt(t *testing.T) {
	s := redistest.Start(t)
	began := time.Now()
	var all []*member
	for range 3 {
		all = append(all, join(t, socket(s), limit, burst))
	}
	for _, m := range all {
		m.awaitConnected(t, true)
		m.startLoad(t, 2*limit)
	}
	time.Sleep(2 * time.Second)
	sent, took := sum(all), time.Since(began)
	t.Logf("%v sent in %v, of %v", sent, took, most(limit, burst, 3, took))
	if sent > most(limit, burst, 3, took) {
		t.Errorf("%v sent in %v, want at most %v", sent, took, most(limit, burst, 3, took))
	}
	for i, m := range all {
		// Even would be a third; a machine that stalls may take some from one.
		if got := float64(m.sent.Load()) / sent; got < 0.2 || got > 0.5 {
			t.Errorf("replica %d has sent %.2f of all", i, got)
		}
		if m.replicas.Load() != 3 {
			t.Errorf("replica %d knows of %d", i, m.replicas.Load())
		}
	}
}
