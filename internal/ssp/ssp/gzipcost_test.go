//go:build !race

package ssp

import (
	"runtime"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// A search in a compressed body costs no more than a search in a plain one. The most expensive
// plain body is a list of seats without bids.
func TestHostileCompressedBodyCostsNoMoreThanAPlainOne(t *testing.T) {
	const seat = `,{"bid":[]}`
	plain := []byte(`{"seatbid":[{}` + strings.Repeat(seat, (maxScan-20)/len(seat)) + `]}`)
	outcome, _ := NoBidOpenRTB.search(plain)
	testsupport.MustEqual(t, outcome, exchange.NoBid, "is %v")
	budget := testsupport.Shortest(func() { NoBidOpenRTB.search(plain) })
	t.Logf("plain: %v", budget)
	for name, body := range hostileBodies(t) {
		coding := []byte("gzip")
		if strings.HasSuffix(name, "zstd") {
			coding = []byte("zstd")
		}
		look := func() { NoBidOpenRTB.searchCoded(coding, body) }
		took := testsupport.Shortest(look)
		t.Logf("%s: %v", name, took)
		testsupport.True(t, took <= 4*budget, "%s takes %v, a plain body %v at most", name, took, budget)
		runtime.GC()
		runtime.GC() // frees the kept decoders
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		look()
		runtime.ReadMemStats(&after)
		// Decoders are kept for the next body. After a garbage collection new ones are made.
		n := after.TotalAlloc - before.TotalAlloc
		testsupport.True(t, n <= 1<<20, "%s takes %d bytes", name, n)
	}
}
