package syntax

import (
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// A trailer that arrives byte by byte must cost about as much as a trailer that arrives at once: a new byte must not
// cause a search through all bytes before it.
func TestLineInManyPiecesIsSearchedOnce(t *testing.T) {
	const size = 1 << 20
	text := []byte("a:" + strings.Repeat("b", size) + "\r\n")
	read := func(step int) time.Duration {
		return testsupport.ThreadTime(func() {
			c := Chunks{next: trailerLine, MaxTrailer: len(text), MaxFields: 1}
			taken := 0
			for arrived := 0; taken == 0; {
				var err error
				arrived = min(arrived+step, len(text))
				taken, err = c.TakeLine(text[:arrived])
				testsupport.NoError(t, err)
			}
			testsupport.MustEqual(t, taken, len(text), "a line of %d bytes")
		})
	}
	whole := max(min(read(len(text)), read(len(text)), read(len(text))), time.Millisecond)
	testsupport.AtMost(t, read(1), 2000*whole, "%v byte by byte, %v at once", whole)
}

func TestViolationsByChunkLinesNameTheirLimit(t *testing.T) {
	size := "1;" + strings.Repeat("a", 250) + "\r\n"
	for text, want := range map[string]string{
		strings.Repeat("a", 300): "more than 256 bytes",
		size:                     "more than 16384 bytes",
	} {
		c := Chunks{MaxData: 1 << 20, BoundExcess: true}
		var err error
		for range 100 {
			if _, err = c.TakeLine([]byte(text)); err != nil {
				break
			}
			c.DataLeft, c.next = 0, sizeLine
		}
		testsupport.True(t, err != nil && strings.Contains(err.Error(), want), "%.9q: %v", text, err)
	}
}

func TestSizesOfChunks(t *testing.T) {
	for line, want := range map[string]error{
		"5": nil, "05": nil, "aF": nil, "5;": nil, "5 ;a=b": nil, "5\t;a": nil, "40000000": nil,
		"": ErrChunk, ";a": ErrChunk, " 5": ErrChunk, "5 ": ErrChunk, "5 a": ErrChunk, "5a;\x01": ErrChunk, "5,": ErrChunk, "0x5": ErrChunk,
		"40000001": ErrChunksTooLarge, "ffffffffffffffffffffffff5": ErrChunksTooLarge,
	} {
		c := Chunks{MaxData: 1 << 31}
		n, err := c.TakeLine([]byte(line + "\r\n"))
		testsupport.True(t, err == want && n == len(line)+2, "%q: %d bytes, %v, want %v", line, n, err, want)
	}
	c := Chunks{MaxData: 7}
	for _, want := range []error{nil, ErrChunksTooLarge} { // of 4 and 4 bytes
		_, err := c.TakeLine([]byte("4\r\n"))
		testsupport.True(t, err == want && (err != nil || c.DataLeft == 4), "%v, want %v", err, want)
		c.DataLeft = 0
		c.TakeLine([]byte("\r\n"))
	}
}
