//go:build !race

package app

import (
	"runtime"
	"testing"
	"time"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

// A dry run judges 10,000 requests of 2 KB within 2 s on one core.
func BenchmarkReplay(b *testing.B) {
	now, then := sideOf(b), sideOf(b, changedFiles[5].replaced...)
	strata := drawn(1, 1000, time.Now())
	b.ReportAllocs()
	for b.Loop() {
		replayed(b, now, then, strata)
	}
}

// A dry run builds two explainers, while requests wait. They register no metrics, and have no limits of log lines.
func TestAnExplainerAllocatesLittle(t *testing.T) {
	cfg, _, err := config.Parse([]byte(twoSSPs), nil)
	testsupport.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		e, err := newExplainer(cfg, "a")
		testsupport.NoError(t, err)
		e.Close()
	}
	runtime.ReadMemStats(&after)
	bytes := (after.TotalAlloc - before.TotalAlloc) / 10
	testsupport.True(t, bytes < 250_000, "an explainer of two SSPs allocates %d bytes, want less than 250000", bytes)
}

// The explanations of a replay reuse the memory of earlier ones: garbage collections would delay the requests of clients.
func TestAReplayAllocatesLittle(t *testing.T) {
	now, then := sideOf(t), sideOf(t, changedFiles[5].replaced...)
	strata := drawn(1, 1000, time.Now())
	requests := replayed(t, now, then, strata).Requests
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	replayed(t, now, then, strata)
	runtime.ReadMemStats(&after)
	bytes := (after.TotalAlloc - before.TotalAlloc) / uint64(requests)
	testsupport.True(t, bytes < 1000, "a replay allocates %d bytes for each request, want less than 1000", bytes)
}
