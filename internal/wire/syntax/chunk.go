package syntax

import (
	"bytes"
	"errors"
	"fmt"
)

// Chunks parses the lines of a body in the chunked transfer coding (RFC 9112, section 7.1); its user reads the data
// between the lines. Sizes are plain hexadecimal, and CRLF ends each line. Extensions are bounded and skipped;
// trailer fields are checked and dropped. A Chunks in which only the limits are set is at the start of a body.
type Chunks struct {
	// MaxData is the maximum number of bytes of data. A chunk that exceeds it is refused when its size line has
	// arrived.
	MaxData int
	// MaxTrailer and MaxFields are how many bytes of trailer lines, and how many trailer fields, may still arrive.
	MaxTrailer, MaxFields int
	// BoundExcess bounds the bytes of size lines: a peer may send extensions and tiny chunks, but not mostly those.
	BoundExcess bool

	// DataLeft is how many bytes of data precede the next line. The user of Chunks subtracts the bytes that it reads.
	DataLeft int

	next     chunkLine
	data     int // bytes of data that size lines have announced
	excess   int // bytes of size lines beyond what fairLine and fairShare allow
	searched int // how many bytes of the next line have been searched for LF
}

// chunkLine is the next line of a chunked body.
type chunkLine uint8

const (
	sizeLine  chunkLine = iota
	endOfData           // the line end after the data
	trailerLine
	bodyEnd // the body has ended
)

// Violations of Chunks.
var (
	ErrChunk           = errors.New("malformed chunk")
	ErrChunkLine       = fmt.Errorf("a chunk's size and extensions take more than %d bytes", maxChunkLine)
	ErrChunkExcess     = fmt.Errorf("the chunks' extensions and line ends exceed their allowance by more than %d bytes", maxExcess)
	ErrChunksTooLarge  = errors.New("body over its limit")
	ErrTrailer         = errors.New("malformed trailer section")
	ErrTrailerTooLarge = errors.New("trailer section over its limit")
	ErrTrailerFields   = errors.New("too many trailer fields")
)

// Bounds of bytes that are not data.
const (
	maxChunkLine = 256      // a size with its extensions and line end
	maxExcess    = 16 << 10 // bound of Chunks.excess
	fairLine     = 16       // bytes of a size line that never count as excess
	fairShare    = 2        // further bytes of a size line, for each byte of data, that do not count as excess
	// maxChunk is the largest body that a configuration allows.
	maxChunk = 1 << 30
)

// Ended reports whether the last line has been taken.
func (c *Chunks) Ended() bool { return c.next == bodyEnd }

// TakeLine takes the line at the start of b, which holds the bytes that have arrived. n is the
// line's length, or 0 if b does not hold all of it. DataLeft must be 0.
func (c *Chunks) TakeLine(b []byte) (n int, err error) {
	limit, tooLong := maxChunkLine, ErrChunkLine
	switch c.next {
	case endOfData:
		limit, tooLong = len("\r\n"), ErrChunk
	case trailerLine:
		limit, tooLong = c.MaxTrailer, ErrTrailerTooLarge
	}
	i := bytes.IndexByte(b[c.searched:], '\n')
	n = c.searched + i + 1
	switch {
	case i < 0 && len(b) < limit:
		c.searched = len(b)
		return 0, nil
	case i < 0 || n > limit:
		return 0, tooLong
	}
	c.searched = 0
	return n, c.take(b[:n])
}

func (c *Chunks) take(line []byte) error {
	text, ok := bytes.CutSuffix(line, []byte("\r\n"))
	switch {
	case c.next == sizeLine && ok:
		return c.takeSize(text)
	case c.next == endOfData && ok && len(text) == 0:
		c.next = sizeLine
	case c.next != trailerLine:
		return ErrChunk
	case ok && len(text) == 0:
		c.next = bodyEnd
	default:
		name, value, colon := bytes.Cut(text, []byte{':'})
		if !ok || !colon || !IsToken(name) || !IsValue(value) {
			return ErrTrailer
		}
		c.MaxTrailer -= len(line)
		c.MaxFields--
		if c.MaxFields < 0 {
			return ErrTrailerFields
		}
	}
	return nil
}

func (c *Chunks) takeSize(line []byte) error {
	size, digits := 0, 0
	for digits < len(line) && HexDigit(line[digits]) >= 0 {
		size = min(size<<4|HexDigit(line[digits]), maxChunk+1)
		digits++
	}
	extensions := bytes.TrimLeft(line[digits:], " \t")
	if digits == 0 || len(extensions) > 0 && extensions[0] != ';' || len(extensions) == 0 && len(line) != digits || !IsValue(extensions) {
		return ErrChunk
	}
	c.excess = max(0, c.excess+len(line)+len("\r\n")-fairLine-fairShare*min(size, maxExcess))
	c.data += size
	switch {
	case c.BoundExcess && c.excess > maxExcess:
		return ErrChunkExcess
	case size > maxChunk || c.data > c.MaxData:
		return ErrChunksTooLarge
	case size == 0:
		c.next = trailerLine
	default:
		c.DataLeft, c.next = size, endOfData
	}
	return nil
}
