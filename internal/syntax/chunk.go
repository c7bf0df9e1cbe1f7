package syntax

import "bytes"

// MaxChunkSize is the largest body that a configuration allows. For a larger size, ParseChunkSize returns
// MaxChunkSize + 1.
const MaxChunkSize = 1 << 30

// ParseChunkSize reads a line of the chunked transfer coding, without its line end: a size in plain
// hexadecimal, and any extensions. ok is false if it is malformed. RFC 9112, section 7.1.
func ParseChunkSize(line []byte) (size int, ok bool) {
	digits := 0
	for digits < len(line) && HexDigit(line[digits]) >= 0 {
		size = min(size<<4|HexDigit(line[digits]), MaxChunkSize+1)
		digits++
	}
	rest := bytes.TrimLeft(line[digits:], " \t")
	if digits == 0 || len(rest) > 0 && rest[0] != ';' || len(rest) == 0 && len(line) != digits {
		return 0, false
	}
	return size, IsValue(rest)
}
