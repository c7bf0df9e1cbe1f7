package http2codec

import "strconv"

// NewResponseEncoder returns an encoder for the blocks of responses, with an empty
// table.
func NewResponseEncoder() Encoder {
	e := NewEncoder()
	e.responses = true
	return e
}

// AppendResponse appends the header block of a response with the status code. lines holds its fields
// as lines of HTTP/1, without the empty line at the end. ok is false if a line is malformed. Then the
// caller must drop the appended bytes and close the connection, since the peer's table may differ
// from e's.
func (e *Encoder) AppendResponse(b []byte, code int, lines []byte) (_ []byte, ok bool) {
	b = e.appendResize(b)
	if i := staticStatus(code); i > 0 {
		b = append(b, indexedField|byte(i))
	} else {
		var digits [20]byte
		b = appendInteger(b, LiteralOnce, 4, staticStatus200)
		b = appendString(b, strconv.AppendInt(digits[:0], int64(code), 10))
	}
	return e.appendLines(b, lines)
}

// AppendTrailers appends the block of a response's trailers, like AppendResponse.
func (e *Encoder) AppendTrailers(b, lines []byte) (_ []byte, ok bool) {
	return e.appendLines(e.appendResize(b), lines)
}

// staticStatus200 is the first index of :status in the static table.
const staticStatus200 = 8

// staticStatus returns the index in the static table of a status, 0 for none.
func staticStatus(code int) int {
	for i, known := range [...]int{200, 204, 206, 304, 400, 404, 500} {
		if code == known {
			return staticStatus200 + i
		}
	}
	return 0
}

// Forget releases e's memory and clears the table. If the table had entries, the next block clears the
// peer's table too: it sets its size to 0, and then back.
func (e *Encoder) Forget() {
	forgotten := Encoder{table: encoderTable{max: e.table.max}, resized: e.resized, smallest: e.smallest, responses: e.responses}
	if e.table.count > 0 {
		forgotten.resized, forgotten.smallest = true, 0
	}
	*e = forgotten
}
