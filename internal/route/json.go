package route

import (
	"bytes"

	"adbuffer/internal/httpsyntax"
)

// isJSONType reports whether a Content-Type is JSON: application/json or a type
// with the suffix +json (RFC 6839, section 3.1), whatever its parameters.
func isJSONType(v []byte) bool {
	v, _, _ = bytes.Cut(v, []byte{';'})
	v = bytes.TrimRight(v, " \t")
	const suffix = "+json"
	return httpsyntax.EqualFold(v, "application/json") ||
		bytes.IndexByte(v, '/') > 0 && len(v) > len(suffix) && httpsyntax.EqualFold(v[len(v)-len(suffix):], suffix)
}

// maxDepth is how deep a body may nest that is inlined. Parsers give up at some
// depth (.NET's at 64, others at 100 to 1000), and an envelope that cannot be
// parsed loses the other SSPs' responses too. With the three levels around a body
// all of those can read it. Bid responses nest about ten deep.
const maxDepth = 60

// isJSON reports whether b, which is UTF-8, is one JSON value that every parser
// accepts, however strict. RFC 8259 leaves some of it to parsers, and a body that
// one of them refuses would lose the other SSPs' responses too. So these are no
// JSON here, and are sent as strings:
//
//   - nesting deeper than maxDepth,
//   - a key that an object has twice (Go's encoding/json/v2 refuses it), also where
//     it is spelled in two ways; and more than maxKeys keys, which would have to be
//     remembered,
//   - an escaped surrogate without its other half, which is no character (Rust,
//     Go v2 and Python's UTF-8 encoder refuse it),
//   - numbers that do not fit: see pastNumber.
//
// It does json.Valid's work in about half the time.
func isJSON(b []byte) bool {
	k := keySets.Get().(*keys)
	defer keySets.Put(k)
	k.reset()
	depth := 0
	var objects uint64 // bit n: what is open at depth n is an object
	i := blanks(b, 0)
	for {
		// b[i] starts a value.
		opened := false
		switch at(b, i) {
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
			objects &^= 1 << depth
			if b[i] == '{' {
				objects |= 1 << depth
				k.open(depth)
			}
			i, opened = i+1, true
		case '"':
			i = pastString(b, i)
		case 't':
			i = pastLiteral(b, i, "true")
		case 'f':
			i = pastLiteral(b, i, "false")
		case 'n':
			i = pastLiteral(b, i, "null")
		default:
			i = pastNumber(b, i)
		}
		if i < 0 {
			return false
		}
		// What has ended, or is empty, may end what is around it.
		for i = blanks(b, i); ; i = blanks(b, i+1) {
			if depth == 0 {
				return i == len(b)
			}
			end := byte(']')
			if objects>>depth&1 == 1 {
				end = '}'
			}
			if at(b, i) != end {
				break
			}
			if end == '}' && !k.close(depth) {
				return false
			}
			depth, opened = depth-1, false
		}
		if !opened {
			if at(b, i) != ',' {
				return false
			}
			i = blanks(b, i+1)
		}
		if objects>>depth&1 == 1 {
			key := i
			if i = pastString(b, i); i < 0 || !k.add(b[key+1:i-1]) {
				return false
			}
			if i = blanks(b, i); at(b, i) != ':' {
				return false
			}
			i = blanks(b, i+1)
		}
	}
}
