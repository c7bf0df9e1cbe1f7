package openrtb

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
	"adbuffer/internal/wire/exchange"
)

var gzipCoding = []byte("gzip")

// zipped compresses pieces with the standard library, with a flush behind each of them.
func zipped(tb testing.TB, level int, pieces ...string) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	testsupport.NoError(tb, err)
	for _, piece := range pieces {
		_, err := w.Write([]byte(piece))
		testsupport.NoError(tb, err)
		testsupport.NoError(tb, w.Flush())
	}
	testsupport.NoError(tb, w.Close())
	return b.Bytes()
}

// sparseBodies are n bytes of gzip or a little more, which decode to next to nothing.
func sparseBodies(tb testing.TB, n int) map[string][]byte {
	header, empty := zipped(tb, 1)[:10], zipped(tb, 1)
	stored := []byte{0, 0, 0, 0xff, 0xff}           // an empty stored block
	fixed := []byte{0x02, 0x08, 0x20, 0x80, 0x00}   // four empty blocks with fixed codes, of ten bits each
	letter := []byte{0, 1, 0, 0xfe, 0xff, 'x'}      // a stored block of a byte
	half := zipped(tb, 1, strings.Repeat("x", 100)) // decodes to more than it has, for once
	half = half[:len(half)-8-5]                     // without the end of its last block
	fill := func(start, unit []byte) []byte { return append(bytes.Clone(start), bytes.Repeat(unit, n/len(unit))...) }
	return map[string][]byte{
		"stored blocks":              fill(header, stored),
		"fixed blocks":               fill(header, fixed),
		"members":                    fill(nil, empty),
		"blocks of a byte":           fill(header, letter),
		"stored blocks behind text":  fill(half, stored),
		"a header that does not end": append([]byte{0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 255, 255}, make([]byte, n)...),
	}
}

func TestADecoderGivesUpOnBodiesThatDecodeToLittle(t *testing.T) {
	g := AcquireDecoder()
	defer g.Release()
	for name, body := range sparseBodies(t, 256<<10) {
		_, err := g.Decode(gzipCoding, body, 256<<10)
		testsupport.True(t, errors.Is(err, ErrSparse) && g.read <= 16384, "%s: %v after %d bytes, want ErrSparse after 16384 at most", name, err, g.read)
	}
	blocks := func(n int) []byte {
		b := zipped(t, 1)[:10]
		return append(append(b, bytes.Repeat([]byte{0, 0, 0, 0xff, 0xff}, n)...), 1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	for n, want := range map[int]error{814: nil, 815: ErrSparse} { // 4093 and 4098 bytes
		_, err := g.Decode(gzipCoding, blocks(n), 10)
		testsupport.True(t, errors.Is(err, want) && (want != nil || err == nil), "%d empty blocks: %v, want %v", n, err, want)
	}
}

func TestBodiesThatAnEncoderMadeAreDecoded(t *testing.T) {
	g := AcquireDecoder()
	defer g.Release()
	r := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 300_000)
	r.Read(noise)
	json := string(bidRequest(t, 300_000))
	for name, text := range map[string]string{"noise": string(noise), "base64": base64.StdEncoding.EncodeToString(noise), "JSON": json, "a letter": strings.Repeat("x", 300_000)} {
		for _, level := range []int{flate.HuffmanOnly, flate.NoCompression, 1, 9} {
			for _, n := range []int{0, 1, 100, 4000, 4096, 5000, 33_000, 300_000} {
				body := zipped(t, level, text[:n])
				got, err := g.Decode(gzipCoding, body, 1<<20)
				testsupport.True(t, err == nil && string(got) == text[:n], "%d bytes of %s at level %d: %v", n, name, level, err)
				twice, err := g.Decode(gzipCoding, append(body, body...), 1<<20)
				testsupport.True(t, err == nil && string(twice) == text[:n]+text[:n], "two members of %d bytes of %s at level %d: %v", n, name, level, err)
				if n > 0 {
					_, err = g.Decode(gzipCoding, body[:len(body)-1], 1<<20)
					testsupport.True(t, errors.Is(err, ErrCoding), "%d bytes of %s at level %d without their end: %v", n, name, level, err)
				}
			}
		}
		// A server may flush what it sends in small pieces.
		var pieces []string
		for i := 0; i < 100_000; i += 40 {
			pieces = append(pieces, text[i:i+40])
		}
		got, err := g.Decode(gzipCoding, zipped(t, 6, pieces...), 1<<20)
		testsupport.True(t, name == "a letter" || err == nil && string(got) == text[:100_000], "flushed pieces of %s: %v", name, err)
	}
	got, err := g.Decode(gzipCoding, zipped(t, 1, json), 1000)
	testsupport.True(t, err == nil && len(got) == 1001, "%d bytes of 1000, %v", len(got), err)
	for _, body := range []string{"", "x", "\x1f\x8b", strings.Repeat("x", 10_000)} {
		_, err := g.Decode(gzipCoding, []byte(body), 1000)
		testsupport.True(t, errors.Is(err, ErrCoding), "%.10q: %v", body, err)
	}
}

// occupy holds all places of share until release.
func occupy(t *testing.T, share *cpushare.Share) (release func()) {
	t.Helper()
	turns := make([]cpushare.Turn, max(1, runtime.GOMAXPROCS(0)/2))
	for i := range turns {
		var err error
		turns[i], err = share.Acquire(cpushare.Decode, 1, time.Now())
		testsupport.NoError(t, err)
	}
	return func() {
		for i := range turns {
			turns[i].Release()
		}
	}
}

// Blocks with tables of their own decode to enough bytes, and cost the most CPU. So the work beyond 4 KiB waits for
// turns.
func TestLargeBodiesAreDecodedInTurns(t *testing.T) {
	share := cpushare.New(0.25, time.Hour)
	release := occupy(t, share)
	g := AcquireDecoder()
	defer g.Release()
	g.Resources = Resources{CPU: share, Party: 2, Deadline: time.Now().Add(time.Millisecond)}
	for n, want := range map[int]error{4096: nil, 8192: ErrNoTurn, 256 << 10: ErrNoTurn} {
		_, err := g.Decode(zstdCoding, testsupport.ZstdOfTables(n), 256<<10)
		testsupport.True(t, errors.Is(err, want) && (want != nil || err == nil), "%d bytes of zstd: %v, want %v", n, err, want)
		testsupport.AtMost(t, g.read, 4096, "%d bytes of zstd were decoded without a turn, want at most 4096")
		_, err = g.Decode(gzipCoding, testsupport.GzipOfTables(n), 256<<10)
		testsupport.True(t, errors.Is(err, want) && (want != nil || err == nil), "%d bytes: %v, want %v", n, err, want)
		testsupport.AtMost(t, g.read, 4096, "%d bytes were decoded without a turn, want at most 4096")
	}
	release()
	body := testsupport.GzipOfTables(256 << 10)
	var decoding atomic.Bool
	decoding.Store(true)
	g.Deadline = time.Now().Add(testsupport.Patience)
	go func() {
		defer decoding.Store(false)
		document, err := g.Decode(gzipCoding, body, 256<<10)
		testsupport.True(t, err == nil && len(document) > 200_000, "%d bytes, %v", len(document), err)
	}()
	// 64 turns of 1 ms or more. Whoever else waits is served between two of them.
	others := 0
	for ; decoding.Load(); others++ {
		turn, err := share.Acquire(cpushare.Decode, 3, time.Now().Add(testsupport.Patience))
		testsupport.NoError(t, err)
		turn.Release()
	}
	testsupport.True(t, others >= 8, "%d turns of others during 256 KiB of tables, want at least 8", others)
	_, err := g.Decode(gzipCoding, body, 1000)
	testsupport.NoError(t, err)
	occupy(t, share)() // no place is lost
}

func TestDecodedBytesCountInTheBudget(t *testing.T) {
	budget := exchange.NewBudget(100_000)
	g := AcquireDecoder()
	g.Budget = budget
	for n, held := range map[int]int64{10: 4096, 4097: 8192, 60_000: 65536} {
		_, err := g.Decode(gzipCoding, zipped(t, 6, strings.Repeat("x", n)), 1<<20)
		testsupport.NoError(t, err)
		testsupport.True(t, budget.Used() >= held, "%d bytes hold %d of the budget, want %d", n, budget.Used(), held)
	}
	_, err := g.Decode(gzipCoding, zipped(t, 6, strings.Repeat("x", 70_000)), 1<<20)
	testsupport.ErrorIs(t, err, ErrNoMemory, "70000 bytes: %v")
	g.Release()
	testsupport.Equal(t, budget.Used(), 0, "%d bytes are held at the end")
}

// BenchmarkDecoder decodes what a bid request shrinks to, and what a decoder gives up on.
func BenchmarkDecoder(b *testing.B) {
	bodies := map[string][]byte{"2KiB": zipped(b, 6, string(bidRequest(b, 2<<10))), "64KiB": zipped(b, 6, string(bidRequest(b, 64<<10)))}
	noise := make([]byte, 48<<10)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	bodies["base64"] = zipped(b, 6, base64.StdEncoding.EncodeToString(noise))
	bodies["stored-blocks"] = sparseBodies(b, 256<<10)["stored blocks"]
	bodies["tables"] = testsupport.GzipOfTables(256 << 10)
	bodies["zstd-2KiB"], bodies["zstd-64KiB"] = []byte(testsupport.Zstd(string(bidRequest(b, 2<<10)))), []byte(testsupport.Zstd(string(bidRequest(b, 64<<10))))
	bodies["zstd-tables"] = testsupport.ZstdOfTables(256 << 10)
	for name, body := range bodies {
		coding := gzipCoding
		if strings.HasPrefix(name, "zstd") {
			coding = zstdCoding
		}
		b.Run(name, func(b *testing.B) {
			g := AcquireDecoder()
			defer g.Release()
			g.Resources = Resources{CPU: cpushare.New(0.25, time.Hour), Deadline: time.Now().Add(time.Hour)}
			b.ReportAllocs()
			for b.Loop() {
				g.Decode(coding, body, 256<<10)
			}
		})
	}
}
