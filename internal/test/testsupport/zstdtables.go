package testsupport

// ZstdOfTables returns at most n bytes of zstd that cost a decoder far more CPU than ordinary zstd of that length: each
// block of 27 bytes has a Huffman table and three FSE tables of its own, the largest that RFC 8878 allows, and decodes to
// 18 bytes.
func ZstdOfTables(n int) []byte {
	var w bitWriter
	w.out = append(w.out, "\x28\xb5\x2f\xfd\x00\x58"...) // a window of 2 MiB, without a checksum
	w.zstdBlock(0, 16)                                   // 16 bytes as they are, to which matches can refer
	w.out = append(w.out, "xxxxxxxxxxxxxxxx"...)
	for len(w.out) < n-60 {
		w.zstdTables(0)
	}
	w.zstdTables(1)
	return w.out
}

// zstdBlock writes the header of a block that has n bytes and is not the last one: 0 = as they are, 2 = compressed.
func (w *bitWriter) zstdBlock(kind, n int) { w.put(uint64(n<<3|kind<<1), 24) }

func (w *bitWriter) zstdTables(last uint64) {
	start := len(w.out)
	w.zstdBlock(2, 0)
	w.put(2|15<<4|9<<14, 24) // literals with a table: 15 in 9 bytes, as one stream
	w.put(127+11, 8)         // so many weights follow: codes of 1 to 11 bits
	w.put(0x1032547698ba, 48)
	w.put(0xffff, 16)        // 15 times the code of one bit, behind the mark of the end
	w.put(1, 8)              // one sequence
	w.put(2<<6|2<<4|2<<2, 8) // with three tables: lengths of literals, offsets, lengths of matches
	for _, log := range []uint{9, 8, 9} {
		w.put(uint64(log-5), 4)
		w.fseTable(log)
	}
	w.put(1<<26, 32) // three states 0: no literal, the offset 4, a match of 3 bytes
	size := len(w.out) - start - 3
	w.out[start], w.out[start+1] = byte(uint64(size)<<3|2<<1|last), byte(size>>5)
}

// fseTable writes the probabilities of two symbols, the second of which has the smallest: RFC 8878, section 4.1.1.
func (w *bitWriter) fseTable(log uint) {
	remaining, threshold, width := 1<<log+1, 1<<log, log+1
	for _, probability := range []int{1<<log - 1, 1} {
		value, most := probability+1, 2*threshold-1-remaining
		remaining -= probability
		if value >= threshold {
			value += most
		}
		if value < most {
			w.put(uint64(value), width-1)
		} else {
			w.put(uint64(value), width)
		}
		for remaining < threshold && threshold > 1 {
			width, threshold = width-1, threshold>>1
		}
	}
	if w.n > 0 {
		w.put(0, 8-w.n) // to the next byte
	}
}
