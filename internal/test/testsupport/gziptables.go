package testsupport

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// GzipOfTables returns at most n bytes of gzip that cost a decoder far more CPU than ordinary gzip of that length: each
// block of 13 bytes has Huffman tables of its own (RFC 1951, section 3.2.7), and decodes to 11 times "x".
func GzipOfTables(n int) []byte {
	w := bitWriter{out: []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}}
	decoded := 11
	for ; len(w.out) < n-40; decoded += 11 {
		w.block(0)
	}
	w.block(1)
	w.put(0, 7) // to the next byte
	w.out = binary.LittleEndian.AppendUint32(w.out, crc32.ChecksumIEEE(bytes.Repeat([]byte{'x'}, decoded)))
	return binary.LittleEndian.AppendUint32(w.out, uint32(decoded))
}

// bitWriter writes bits as deflate has them, the lowest one first.
type bitWriter struct {
	out  []byte
	bits uint64
	n    uint // of bits
}

func (w *bitWriter) put(bits uint64, n uint) {
	w.bits |= bits << w.n
	for w.n += n; w.n >= 8; w.n -= 8 {
		w.out = append(w.out, byte(w.bits))
		w.bits >>= 8
	}
}

// block writes a block with tables. Code lengths are written in codes of two bits, whose bits are reversed: code 0 is
// the length 1, code 2 the length 2, code 1 means 3 to 10 absent codes, and code 3 means 11 to 138 absent codes.
func (w *bitWriter) block(last uint64) {
	w.put(last, 1)
	w.put(2, 2)                                                                             // with tables
	w.put(265-257, 5)                                                                       // codes of literals and lengths
	w.put(0, 5)                                                                             // one code of a distance
	w.put(14, 4)                                                                            // 18 lengths of the codes of code lengths
	for _, length := range []uint64{0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2} { // 17, 18, 2 and 1
		w.put(length, 3)
	}
	w.put(3, 2)
	w.put('x'-11, 7) // the codes before "x"
	w.put(2, 2)      // "x": 01
	w.put(3, 2)
	w.put(135-11, 7)
	w.put(2, 2) // 256, the end of the block: 11
	w.put(1, 2)
	w.put(7-3, 3)
	w.put(0, 2) // 264, a match of 10 bytes: 0
	w.put(0, 2) // the distance 1: 0

	w.put(1, 2) // x
	w.put(0, 2) // a match
	w.put(3, 2) // the end
}
