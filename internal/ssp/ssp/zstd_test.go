package ssp

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestNoBidsInZstd(t *testing.T) {
	noise := make([]byte, 3000)
	for i := range noise {
		noise[i] = byte(i * i * 31 >> 3)
	}
	long := noBidJSON + base64.StdEncoding.EncodeToString(noise)
	for _, c := range []struct {
		name, body string
		want       exchange.Outcome
	}{
		{"no bid", testsupport.Zstd(noBidJSON), exchange.NoBid},
		{"a bid", testsupport.Zstd(bidJSON), exchange.Fill},
		{"no bid, by the program", testsupport.ZstdProgram(t, noBidJSON, "-19"), exchange.NoBid},
		{"a bid, by the program", testsupport.ZstdProgram(t, bidJSON, "-1", "--no-check"), exchange.Fill},
		{"no bid, with 64 KiB of blanks", testsupport.Zstd(noBidJSON + strings.Repeat(" ", maxScan-len(noBidJSON))), exchange.NoBid},
		{"no bid, with more blanks", testsupport.Zstd(noBidJSON + strings.Repeat(" ", maxScan-len(noBidJSON)+1)), exchange.Fill},
		{"larger than the decoding limit", testsupport.Zstd(long), exchange.Fill},
		{"behind a skippable frame", "\x5f\x2a\x4d\x18\x01\x00\x00\x00x" + testsupport.Zstd(noBidJSON), exchange.NoBid},
		{"no zstd", noBidJSON, exchange.Unreadable},
		{"no zstd, and large", long, exchange.Unreadable},
		{"a cut header", "\x28\xb5\x2f\xfd", exchange.Unreadable},
		{"a cut no-bid", testsupport.Zstd(noBidJSON)[:15], exchange.Unreadable},
	} {
		before := bytes.Clone([]byte(c.body))
		got := classifyCoded(NoBidOpenRTB, []byte(c.body), "Zstd")
		testsupport.True(t, got == c.want && string(before) == c.body, "%s: %v, want %v", c.name, got, c.want)
	}
}
