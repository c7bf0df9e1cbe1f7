package limits

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

const (
	failuresOn  = "log: {access: {enabled: true, sample: 0, max_per_second: 100}}\n"
	floodPath   = "/fillbuffer"
	floodRate   = 5000 // errors a second
	floodersNum = 8    // clients
)

// failing is the configuration of an adbuffer in front of an SSP that always responds with 503.
func failing(tb testing.TB) string {
	s := e2e.Failing(tb, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
	return e2e.Single(s.URL(), "breaker: {enabled: false}")
}

// flood causes n errors, at most floodRate a second.
func flood(tb testing.TB, ab *e2e.Process, n int) {
	tb.Helper()
	began := time.Now()
	ab.Concurrently(floodersNum, func(w *e2e.Worker) error {
		for i := range n / floodersNum {
			time.Sleep(time.Until(began.Add(time.Duration(i*floodersNum) * time.Second / floodRate)))
			if a, err := w.Exchange("GET", floodPath, ""); err != nil {
				return err
			} else if a.Status != 503 {
				return fmt.Errorf("status %d", a.Status)
			}
		}
		return nil
	})
}

// A flood of errors writes at most log.access.max_per_second lines, and each further error is
// counted.
func TestAFloodOfErrorsWritesNoMoreLinesThanTheCap(t *testing.T) {
	t.Parallel()
	ab := e2e.Start(t, failuresOn+failing(t))
	const errors = 4000
	began := time.Now()
	flood(t, ab, errors)
	seconds := int(time.Since(began)/time.Second) + 2 // seconds of the clock that the flood may have overlapped
	suppressed := int(ab.Metric("adbuffer_log_suppressed_total"))
	lines := func() int { return len(ab.Log.Lines("request")) }
	testsupport.Eventually(t, "the log has the other lines", func() bool { return lines() >= errors-suppressed })
	if n := lines(); n+suppressed != errors || n > 100*seconds || n < 100 {
		t.Errorf("%d lines, %d suppressed, of %d errors in %d seconds", n, suppressed, errors, seconds)
	}
	ab.WantMetric(errors, "adbuffer_requests_total", "route=default", "outcome=server_error")
}
