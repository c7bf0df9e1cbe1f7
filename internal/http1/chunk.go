package http1

import (
	"bufio"

	"adbuffer/internal/syntax"
)

// The chunked transfer coding, RFC 9112, section 7.1. Sizes are plain hexadecimal, and CRLF ends
// each line. Extensions are bounded and skipped; trailer fields are checked and dropped.

// maxChunkLine bounds the line of a chunk's size and extensions.
const maxChunkLine = 256

func (r *responseReader) readChunkSize(br *bufio.Reader) error {
	line, n, err := r.line(br, min(maxChunkLine, r.maxHead), errChunk, errChunk)
	if n == 0 || err != nil {
		return err
	}
	size, ok := syntax.ParseChunkSize(line)
	switch {
	case !ok:
		return errChunk
	case size > syntax.MaxChunkSize:
		return errBodyTooLarge
	}
	br.Discard(n)
	if size == 0 {
		r.phase = inTrailer
		return nil
	}
	r.phase, r.remaining = inChunk, size
	return r.claim(size)
}

func (r *responseReader) readChunkEnd(br *bufio.Reader) error {
	for br.Buffered() < 2 {
		if err := r.fill(br); err != nil {
			return err
		}
	}
	if b, _ := br.Peek(2); b[0] != '\r' || b[1] != '\n' {
		return errChunk
	}
	br.Discard(2)
	r.phase = inChunkSize
	return nil
}

func (r *responseReader) readTrailer(br *bufio.Reader) error {
	line, n, err := r.line(br, r.maxHead-r.trailerBytes, errHeadTooLarge, errTrailer)
	if n == 0 || err != nil {
		return err
	}
	r.trailerBytes += n
	br.Discard(n)
	if len(line) == 0 {
		r.phase = atEnd
		return nil
	}
	if _, _, err := cutField(line); err != nil {
		return errTrailer
	}
	r.header.fields++
	if r.header.fields > r.header.maxFields {
		return errTooManyFields
	}
	return nil
}

// line returns the next line without its CRLF, and its length with the CRLF. n is 0 if the line is
// still incomplete: the call has read more bytes, and the caller calls line again. For a line over
// limit bytes, line returns tooLong, and for a line that ends in a bare LF bareLF.
func (r *responseReader) line(br *bufio.Reader, limit int, tooLong, bareLF error) (line []byte, n int, err error) {
	b, _ := br.Peek(br.Buffered())
	line, n, bare, ok := cutLine(b, 0, r.searched)
	r.searched = 0
	switch {
	case !ok && len(b) >= limit, n > limit:
		return nil, 0, tooLong
	case bare:
		return nil, 0, bareLF
	case !ok:
		r.searched = len(b)
		return nil, 0, r.fill(br)
	}
	return line, n, nil
}
