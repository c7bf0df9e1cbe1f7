package syntax

// MaxJSONDepth is how deep a valid document may nest. Parsers stop at some depth (.NET's at 64,
// others at 100 to 1000). An envelope that cannot be parsed also loses the other SSPs' responses.
// With the three levels of the envelope, all these parsers can read it. Bid responses nest about
// ten levels deep.
const MaxJSONDepth = 60

// ValidJSON reports whether b, which must be UTF-8, is one JSON value that every parser accepts,
// however strict. RFC 8259 leaves some choices to parsers. In an envelope of several SSPs'
// responses, a body that one parser refuses would lose the others too. So these are not valid here:
//
//   - Nesting deeper than MaxJSONDepth.
//   - Two equal keys in an object, even in two spellings. Go's encoding/json/v2 refuses them.
//   - More than MaxJSONKeys keys, since ValidJSON must remember them.
//   - An escaped surrogate without its other half. It is no character; Rust, Go v2 and Python's
//     UTF-8 encoder refuse it.
//   - Numbers that do not fit: see skipNumber.
//
// ValidJSON takes about half the time of json.Valid.
func ValidJSON(b []byte) bool {
	k := keySets.Get().(*keys)
	defer keySets.Put(k)
	k.hashes = k.hashes[:0]
	depth := 0
	var objects uint64 // bit n: the open value at depth n is an object
	i := SkipJSONBlanks(b, 0)
	for {
		// b[i] starts a value.
		opened := false
		switch JSONByte(b, i) {
		case '{', '[':
			depth++
			if depth > MaxJSONDepth {
				return false
			}
			objects &^= 1 << depth
			if b[i] == '{' {
				objects |= 1 << depth
				k.starts[depth] = len(k.hashes)
			}
			i, opened = i+1, true
		case '"':
			i = skipString(b, i)
		case 't':
			i = SkipJSONLiteral(b, i, "true")
		case 'f':
			i = SkipJSONLiteral(b, i, "false")
		case 'n':
			i = SkipJSONLiteral(b, i, "null")
		default:
			i = skipNumber(b, i)
		}
		if i < 0 {
			return false
		}
		// Close the value that ends here, and the values that end with it.
		for i = SkipJSONBlanks(b, i); ; i = SkipJSONBlanks(b, i+1) {
			if depth == 0 {
				return i == len(b)
			}
			end := byte(']')
			if objects>>depth&1 == 1 {
				end = '}'
			}
			if JSONByte(b, i) != end {
				break
			}
			if end == '}' && !k.close(depth) {
				return false
			}
			depth, opened = depth-1, false
		}
		if !opened {
			if JSONByte(b, i) != ',' {
				return false
			}
			i = SkipJSONBlanks(b, i+1)
		}
		if objects>>depth&1 == 1 {
			key := i
			i = skipString(b, i)
			if i < 0 || !k.add(b[key+1:i-1]) {
				return false
			}
			i = SkipJSONBlanks(b, i)
			if JSONByte(b, i) != ':' {
				return false
			}
			i = SkipJSONBlanks(b, i+1)
		}
	}
}
