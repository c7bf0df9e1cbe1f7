package http1

import (
	"bufio"
	"bytes"

	"adbuffer/internal/httpsyntax"
)

// The chunked transfer coding, RFC 9112, section 7.1. Strict: sizes are plain
// hexadecimal, lines end in CRLF, extensions are skipped and bounded, trailer
// fields are checked and dropped.

// maxChunkLine bounds a chunk's size with its extensions.
const maxChunkLine = 256

// maxChunkSize keeps sizes far from overflow, on any architecture. It is over
// every limit that we have.
const maxChunkSize = 1 << 30

func (a *answerReader) readChunkSize(br *bufio.Reader) error {
	line, n, err := a.line(br, min(maxChunkLine, a.maxHead), errChunk)
	if n == 0 || err != nil {
		return err
	}
	size, digits := 0, 0
	for _, c := range line {
		d := httpsyntax.HexDigit(c)
		if d < 0 {
			break
		}
		size = size<<4 | d
		if digits++; size > maxChunkSize {
			return errBodyTooLarge
		}
	}
	rest := bytes.TrimLeft(line[digits:], " \t")
	if digits == 0 || len(rest) > 0 && rest[0] != ';' || len(rest) == 0 && len(line) != digits || !httpsyntax.IsValue(rest) {
		return errChunk
	}
	br.Discard(n) //nolint:errcheck // n bytes are buffered
	if size == 0 {
		a.phase = inTrailer
		return nil
	}
	a.phase, a.left = inChunk, size
	return a.claim(size)
}

func (a *answerReader) readChunkEnd(br *bufio.Reader) error {
	for br.Buffered() < 2 {
		if err := a.more(br); err != nil {
			return err
		}
	}
	if b, _ := br.Peek(2); b[0] != '\r' || b[1] != '\n' {
		return errChunk
	}
	br.Discard(2) //nolint:errcheck // two bytes are buffered
	a.phase = inChunkSize
	return nil
}

func (a *answerReader) readTrailer(br *bufio.Reader) error {
	line, n, err := a.line(br, a.maxHead-a.trailer, errTrailer)
	if n == 0 || err != nil {
		return err
	}
	if len(line) == 0 {
		a.phase = atEnd
	} else if _, _, err := cutField(line); err != nil {
		return errTrailer
	} else if a.head.fields++; a.head.fields > a.maxFields {
		return errTooManyFields
	}
	a.trailer += n
	br.Discard(n) //nolint:errcheck // n bytes are buffered
	return nil
}

// line returns the next line without its CRLF, and how many bytes it takes with
// it. n is 0 where it has not come whole: more bytes are there now, and line is
// to be called again. A line over limit bytes, or one with a bare LF, is tooBad.
func (a *answerReader) line(br *bufio.Reader, limit int, tooBad error) (line []byte, n int, err error) {
	b, _ := br.Peek(br.Buffered())
	line, n, bare, ok := cutLine(b, 0, a.searched)
	a.searched = 0
	switch {
	case !ok && len(b) >= limit, n > limit, bare:
		return nil, 0, tooBad
	case !ok:
		a.searched = len(b)
		return nil, 0, a.more(br)
	}
	return line, n, nil
}
