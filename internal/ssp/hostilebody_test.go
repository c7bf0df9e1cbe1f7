package ssp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// bitWriter writes a stream of bits, the lowest bit first.
type bitWriter struct {
	b    []byte
	v, n uint
}

func (w *bitWriter) put(value, n uint) *bitWriter {
	for w.v, w.n = w.v|value<<w.n, w.n+n; w.n >= 8; w.v, w.n = w.v>>8, w.n-8 {
		w.b = append(w.b, byte(w.v))
	}
	return w
}

// hostileBodies have at most maxCodedScan bytes, and cost a decoder the maximum for this size.
func hostileBodies(t testing.TB) map[string]struct {
	coding string
	body   []byte
} {
	type coded = struct {
		coding string
		body   []byte
	}
	all := map[string]coded{}
	zeros := strings.Repeat("\x00", 4<<20)
	for i, e := range encoders {
		// A bomb of the largest size within the bound, and a truncated one.
		b := encode(t, e.writer, zeros)
		all[fmt.Sprint("a bomb in ", e.coding, " ", i)] = coded{e.coding, b[:min(len(b), maxCodedScan)]}
	}
	// Deflate: empty blocks, each with its own tables.
	w := new(bitWriter)
	for len(w.b) < maxCodedScan-16 {
		w.put(0, 1).put(2, 2).put(0, 5).put(0, 5).put(14, 4)
		for i := range 18 {
			w.put(map[int]uint{2: 1, 17: 1}[i], 3) // codes for "11 to 138 zeros" and for "1 bit"
		}
		w.put(1, 1).put(127, 7).put(1, 1).put(117-11, 7).put(0, 1).put(0, 1).put(0, 1).put(1, 1)
	}
	all["tables in deflate"] = coded{"deflate", w.b}
	// Empty members and frames.
	empty := encode(t, encoders[0].writer, "")
	all["members of gzip"] = coded{"gzip", bytes.Repeat(empty, maxCodedScan/len(empty))}
	all["frames of zstd"] = coded{"zstd", bytes.Repeat([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0}, maxCodedScan/9)}
	// A frame with the largest window, and blocks of 128 KB that repeat a byte.
	all["blocks of zstd"] = coded{"zstd", append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 13 << 3}, bytes.Repeat([]byte{0x02, 0x00, 0x10, 'x'}, maxCodedScan/4-2)...)}
	// Brotli: a block of a byte that is not compressed, and one that claims 16 MB,
	// with the largest window; and blocks with 256 trees of literals and of distances.
	w = new(bitWriter)
	w.put(0x0f, 4).put(0, 1).put(0, 2).put(0, 16).put(1, 1).put('x', 8)
	w.put(0, 1).put(2, 2).put(1<<24-1, 24).put(1, 1).put(0, 4)
	all["a claim in brotli"] = coded{"br", append(w.b, make([]byte, 1000)...)}
	w = new(bitWriter)
	w.put(0x0f, 4)
	for len(w.b) < maxCodedScan-1000 {
		w.put(0, 1).put(0, 2).put(0, 16).put(0, 1) // one byte
		w.put(0, 3).put(0, 6).put(0, 2)            // one type each of literals, commands and distances
		for range 2 {                              // 256 trees, all contexts use the first
			w.put(1, 1).put(7, 3).put(127, 7).put(0, 1).put(1, 2).put(0, 2).put(0, 8).put(0, 1)
		}
		for range 256 {
			w.put(1, 2).put(0, 2).put('x', 8)
		}
		w.put(1, 2).put(0, 2).put(8, 10)
		for range 256 {
			w.put(1, 2).put(0, 2).put(0, 6)
		}
	}
	all["trees in brotli"] = coded{"br", w.b}
	for name, c := range all {
		if len(c.body) > maxCodedScan {
			t.Fatalf("%s has %d bytes, over the decoding limit", name, len(c.body))
		}
	}
	return all
}
