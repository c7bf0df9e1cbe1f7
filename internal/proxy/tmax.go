package proxy

import (
	"bytes"
	"time"
)

// tmax returns the tmax of r's body, where that is an uncompressed JSON object,
// and notes for the SSPs where it stands.
func tmax(r *request) (time.Duration, bool) {
	if r.fields.ContentEncoding() != nil {
		return 0, false
	}
	d, start, end := scanTmax(r.body)
	r.ssp.TmaxStart, r.ssp.TmaxEnd = start, end
	return d, end > start
}

// maxTmaxScan bounds how far into a body its tmax is searched: as far as the
// largest body that server.max_body_bytes allows by default.
const maxTmaxScan = 256 << 10

var tmaxKey = []byte(`"tmax"`)

// scanTmax finds the top-level key "tmax" of a JSON object: its value, and that
// body[start:end] are its digits. start is end where there is none, or one that
// is not an integer from 1 to 600000, written with digits alone.
//
// It scans the body up to the key, and parses nothing: strings and the depth of
// brackets are all it looks at. What it finds in JSON is what a parser
// finds; what is not JSON it may give up on, and finds at worst a number that
// nobody meant. Of several keys the first counts. Parsers differ there (RFC
// 8259, section 4; most take the last), and the first is what can be had
// without reading all of a body that has no second. A key that is spelled with
// escapes is not found.
func scanTmax(body []byte) (value time.Duration, start, end int) {
	b := body[:min(len(body), maxTmaxScan)]
	if !bytes.Contains(b, tmaxKey) {
		return 0, 0, 0 // found out at a tenth of a scan's price
	}
	i := skipBlanks(b, 0)
	if i == len(b) || b[i] != '{' {
		return 0, 0, 0
	}
	for {
		// A key, or the end of the object.
		if i = skipBlanks(b, i+1); i == len(b) || b[i] != '"' {
			return 0, 0, 0
		}
		key := i
		if i = skipString(b, i); i < 0 {
			return 0, 0, 0
		}
		found := bytes.Equal(b[key:i], tmaxKey)
		if i = skipBlanks(b, i); i == len(b) || b[i] != ':' {
			return 0, 0, 0
		}
		i = skipBlanks(b, i+1)
		if found {
			return tmaxAt(b, i)
		}
		if i = skipValue(b, i); i < 0 || b[i] != ',' {
			return 0, 0, 0
		}
	}
}

// tmaxAt reads the value that begins at b[i].
func tmaxAt(b []byte, i int) (value time.Duration, start, end int) {
	start, end = i, i
	for end < len(b) && isDigit(b[end]) && end-start <= maxStatedDigits {
		end++
	}
	after := skipBlanks(b, end)
	if after == len(b) || b[after] != ',' && b[after] != '}' || start < end && b[start] == '0' {
		return 0, 0, 0 // not a whole number, or one with more to it
	}
	value, ok := parseMs(b[start:end])
	if !ok {
		return 0, 0, 0
	}
	return value, start, end
}

// maxStatedDigits is how many digits maxStatedMs has.
const maxStatedDigits = 6

// skipBlanks returns where the first byte at or after b[i] stands that JSON does
// not allow between tokens.
func skipBlanks(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns what follows the string that begins at b[i], -1 where it
// has no end.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return -1
}

// skipValue returns where the comma or bracket stands that follows, at the same
// depth, the value that begins at b[i]; -1 where there is none.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch tokens[b[i]] {
		case opening:
			depth++
		case closing:
			if depth == 0 {
				return i
			}
			depth--
		case comma:
			if depth == 0 {
				return i
			}
		case quote:
			if i = skipString(b, i); i < 0 {
				return -1
			}
			continue
		}
		i++
	}
	return -1
}

// tokens says what a byte outside of strings means to skipValue.
var tokens = [256]uint8{'{': opening, '[': opening, '}': closing, ']': closing, ',': comma, '"': quote}

const (
	other uint8 = iota
	opening
	closing
	comma
	quote
)

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
