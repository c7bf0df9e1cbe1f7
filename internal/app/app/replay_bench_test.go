//go:build !race

package app

import (
	"testing"
	"time"
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
