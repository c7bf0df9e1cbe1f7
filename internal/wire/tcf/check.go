package tcf

import "encoding/binary"

// check reports whether data, a decoded core segment, is valid: it has all bits that its own counts announce, and at most
// one list of vendors for each publisher restriction. restricted has bit n set if purpose n has a publisher restriction.
//
// The library that parses consent strings, tcf2, checks neither: it allocates memory for all announced restrictions before
// it reads them (394 KB for a string of 54 characters), it panics on some truncated strings, and of two lists of vendors
// for one restriction it uses only the last.
func check(data []byte) (restricted uint64, valid bool) {
	b := bits{data: data, at: vendorsAt}
	b.skipVendors() // with consent
	b.skipVendors() // with legitimate interest
	var seen [1 << 8]bool
	for range b.take(12) {
		restriction := b.take(8) // purpose and type
		if seen[restriction] {
			return 0, false
		}
		seen[restriction] = true
		restricted |= 1 << (restriction >> 2)
		b.skipRanges()
	}
	return restricted, b.at <= 8*len(data)
}

// vendorsAt is the offset, in bits, of the vendors with consent.
const vendorsAt = 213

// bits reads numbers from data. Beyond its end, all bits are zero.
type bits struct {
	data []byte
	at   int // offset of the next bit
}

// take returns the number in the next n bits, up to 25.
func (b *bits) take(n int) int {
	var next [4]byte
	copy(next[:], b.data[min(b.at/8, len(b.data)):])
	v := binary.BigEndian.Uint32(next[:]) << (b.at % 8) >> (32 - n)
	b.at += n
	return int(v)
}

// skipVendors skips a set of vendors: a bit for each vendor id, or a list of ranges.
func (b *bits) skipVendors() {
	highest := b.take(16)
	if b.take(1) == 0 {
		b.at += highest
	} else {
		b.skipRanges()
	}
}

// skipRanges skips a list of ranges of vendor ids. A range is a single id, or its first and its last id.
func (b *bits) skipRanges() {
	for range b.take(12) {
		if b.take(1) == 0 {
			b.at += 16
		} else {
			b.at += 32
		}
	}
}
