package openrtb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var zstdCoding = []byte("zstd")

// flushed compresses text in pieces of n bytes, with a flush behind each of them.
func flushed(t *testing.T, text string, n int) string {
	t.Helper()
	var b bytes.Buffer
	e, err := zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1))
	testsupport.NoError(t, err)
	for i := 0; i < len(text); i += n {
		_, err := e.Write([]byte(text[i:min(i+n, len(text))]))
		testsupport.NoError(t, err)
		testsupport.NoError(t, e.Flush())
	}
	testsupport.NoError(t, e.Close())
	return b.String()
}

func TestBodiesInZstdAreDecoded(t *testing.T) {
	d := AcquireDecoder()
	defer d.Release()
	noise := make([]byte, 300_000)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for name, text := range map[string]string{"noise": string(noise), "JSON": string(bidRequest(t, 300_000)), "a letter": strings.Repeat("x", 300_000)} {
		decodes := func(how, body string, n int) {
			t.Helper()
			got, err := d.Decode(zstdCoding, []byte(body), 1<<20)
			testsupport.True(t, err == nil && string(got) == text[:n], "%d bytes of %s, %s: %d bytes, %v", n, name, how, len(got), err)
			if n > 0 {
				_, err = d.Decode(zstdCoding, []byte(body[:len(body)-1]), 1<<20)
				testsupport.True(t, errors.Is(err, ErrCoding), "%d bytes of %s, %s, without their end: %v", n, name, how, err)
			}
		}
		for _, n := range []int{0, 1, 1000, 300_000} {
			decodes("by the library", testsupport.Zstd(text[:n]), n)
			decodes("by the program", testsupport.ZstdProgram(t, text[:n], "-3"), n)
		}
		decodes("by the program without a checksum", testsupport.ZstdProgram(t, text, "-9", "--no-check"), 300_000)
		decodes("in a window of 8 MiB", testsupport.ZstdProgram(t, text, "-1", "--zstd=wlog=23"), 300_000)
		decodes("in frames", testsupport.Zstd(text[:1000])+testsupport.ZstdProgram(t, text[1000:200_000])+testsupport.Zstd(text[200_000:]), 300_000)
		decodes("in flushed pieces", flushed(t, text[:40_000], 40), 40_000)
		got, err := d.Decode(zstdCoding, []byte(testsupport.ZstdProgram(t, text)), 1000)
		testsupport.True(t, err == nil && string(got) == text[:1001], "%d bytes of 1000 of %s, %v", len(got), name, err)
		_, err = d.Decode(zstdCoding, []byte(testsupport.ZstdProgram(t, text, "-1", "--zstd=wlog=24")), 1<<20)
		testsupport.True(t, errors.Is(err, ErrCoding), "a window of 16 MiB: %v", err)
	}
	whole := testsupport.ZstdProgram(t, `{"tmax":100,"x":"`+strings.Repeat("abcdefgh", 20)+`"}`)
	for n := range len(whole) {
		_, err := d.Decode(zstdCoding, []byte(whole[:n]), 1000)
		testsupport.True(t, errors.Is(err, ErrCoding), "the first %d bytes of %d: %v", n, len(whole), err)
	}
	for name, body := range map[string]string{
		"no zstd": "{}", "bytes behind the end": whole + "x", "a dictionary": "\x28\xb5\x2f\xfd\x21\x01\x01\x09\x00\x00x",
		"a wrong checksum": whole[:len(whole)-1] + "\x00", "a reserved block": "\x28\xb5\x2f\xfd\x20\x01\x0f\x00\x00x",
	} {
		_, err := d.Decode(zstdCoding, []byte(body), 1000)
		testsupport.True(t, errors.Is(err, ErrCoding), "%s: %v", name, err)
	}
}

const zstdHeader = "\x28\xb5\x2f\xfd\x00\x68" // a window of 8 MiB, without length and checksum

func TestADecoderGivesUpOnZstdThatDecodesToLittle(t *testing.T) {
	d := AcquireDecoder()
	defer d.Release()
	for name, body := range map[string]string{
		"empty blocks":            zstdHeader + strings.Repeat("\x00\x00\x00", 90_000),
		"empty compressed blocks": zstdHeader + strings.Repeat("\x14\x00\x00\x00\x00", 50_000),
		"blocks without a length": zstdHeader + strings.Repeat("\x02\x00\x00x", 60_000),
		"blocks of a byte":        zstdHeader + strings.Repeat("\x08\x00\x00x", 60_000),
		"empty frames":            strings.Repeat("\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00", 30_000),
		"skippable frames":        strings.Repeat("\x50\x2a\x4d\x18\x00\x00\x00\x00", 30_000),
		"a long skippable frame":  "\x50\x2a\x4d\x18\x00\x00\x04\x00" + strings.Repeat("x", 256<<10),
	} {
		_, err := d.Decode(zstdCoding, []byte(body), 256<<10)
		testsupport.True(t, errors.Is(err, ErrSparse) && d.read <= 16384, "%s: %v after %d bytes, want ErrSparse after 16384 at most", name, err, d.read)
	}
}

// The window that a frame states, and the length, cost no memory beyond what may be decoded.
func TestABombInZstdIsBounded(t *testing.T) {
	single := func(length uint64) string {
		return string(binary.LittleEndian.AppendUint64([]byte("\x28\xb5\x2f\xfd\xe0"), length)) + "\x01\x00\x00"
	}
	for name, c := range map[string]struct {
		body    string
		limit   int
		decoded int
		err     error
		budget  int64
	}{
		"a window of 8 MiB and no byte": {zstdHeader + "\x01\x00\x00", 1000, 0, nil, 420_000},
		"a length of 1 TiB":             {single(1 << 40), 1000, 0, nil, 420_000},
		"60 MiB in 2 KB":                {zstdHeader + strings.Repeat("\x02\x00\x10x", 480), 1000, 1001, nil, 420_000},
		"60 MiB where 256 KiB may be":   {zstdHeader + strings.Repeat("\x02\x00\x10x", 480), 256 << 10, 256<<10 + 1, nil, 1_000_000},
		"more than the budget":          {zstdHeader + strings.Repeat("\x02\x00\x10x", 480), 4 << 20, 0, ErrNoMemory, 4096},
	} {
		budget := exchange.NewBudget(1 << 20)
		d := new(Decoder)
		d.Budget = budget
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := d.Decode(zstdCoding, []byte(c.body), c.limit)
		runtime.ReadMemStats(&after)
		testsupport.True(t, errors.Is(err, c.err) && len(got) == c.decoded, "%s: %d bytes, %v", name, len(got), err)
		testsupport.AtMost(t, budget.Used(), c.budget, name+": %d bytes of the budget are used, want at most %d", c.budget)
		testsupport.AtMost(t, after.TotalAlloc-before.TotalAlloc, 3<<20, name+": %d bytes are allocated, want at most 3 MiB")
		d.Release()
		testsupport.Equal(t, budget.Used(), 0, name+": %d bytes are held at the end")
	}
}

func TestWindowsAreStatedInFull(t *testing.T) {
	for _, c := range []struct {
		n          uint64
		descriptor byte
		window     int
	}{{0, 0, 1024}, {1024, 0, 1024}, {1025, 1, 1152}, {2047, 8, 2048}, {2048, 8, 2048}, {2049, 9, 2304}, {8 << 20, 13 << 3, 8 << 20}} {
		descriptor, window := windowOf(c.n)
		testsupport.True(t, descriptor == c.descriptor && window == c.window, "%d bytes: descriptor %#x, window %d, want %#x, %d", c.n, descriptor, window, c.descriptor, c.window)
	}
}
