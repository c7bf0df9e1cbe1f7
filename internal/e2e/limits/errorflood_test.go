package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// This measures the cost of logging failures under the limit. It compares the CPU time of a process
// at 5000 errors a second with that of a process without a log. Each iteration is one second of
// each, in turn; ratio is the median.
func BenchmarkErrorFlood(b *testing.B) {
	config := failing(b)
	logs, silent := e2e.Start(b, failuresOn+config), e2e.Start(b, config)
	var ratios, with, without []float64
	measure := func(ab *e2e.Process) float64 {
		before := cpu(b, ab)
		flood(b, ab, floodRate)
		return float64((cpu(b, ab) - before).Nanoseconds()) / floodRate / 1000
	}
	measure(logs)
	measure(silent)
	for b.Loop() {
		if len(ratios)%2 == 0 {
			with, without = append(with, measure(logs)), append(without, measure(silent))
		} else {
			without, with = append(without, measure(silent)), append(with, measure(logs))
		}
		i := len(ratios)
		ratios = append(ratios, with[i]/without[i])
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(with), "µs-logged/error")
	b.ReportMetric(median(without), "µs-silent/error")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// cpu returns the CPU time of the process.
func cpu(tb testing.TB, ab *e2e.Process) (total time.Duration) {
	tb.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", ab.Cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no threads: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		var d time.Duration
		if _, err := fmt.Sscan(string(text), (*int64)(&d)); err != nil {
			tb.Fatal(err)
		}
		total += d
	}
	return total
}
