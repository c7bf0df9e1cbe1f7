package syntax

// What SkipJSON returns if there is no value.
const (
	NotJSON = -1 // by RFC 8259
	TooDeep = -2
)

// SkipJSON returns the offset after the value that starts at b[i], or NotJSON or TooDeep. The value is in a container
// of depth depth, and containers may nest maxDepth levels deep, at most 64. Strings may hold bytes that are not
// UTF-8, and lone surrogates.
func SkipJSON(b []byte, i, depth, maxDepth int) int { return skipValue(b, i, depth, maxDepth, nil) }

// skipValue is SkipJSON. If strict is not nil, skipValue also refuses what ValidJSON refuses.
//
// Most bytes are in strings, integers and the punctuation between them, so skipValue reads these without calls, and looks
// for blanks only where nothing else fits. A call for each string makes it slower by a tenth, and so does a variable
// instead of goto (BenchmarkAppend of package openrtb).
func skipValue(b []byte, i, depth, maxDepth int, strict *keys) int {
	var objects uint64 // a bit for each open container, the innermost in the lowest bit: 1 = an object
	outer := depth
	for {
		// b[i] starts a value, or is a blank before a value in a container.
		switch c := JSONByte(b, i); {
		case c == '"':
			i = skipPlain(b, i+1)
			if JSONByte(b, i) == '"' {
				i++
				break
			}
			i = skipEscapes(b, i, strict != nil)
			if i < 0 {
				return NotJSON
			}
		case IsDigit(c) && strict == nil:
			end := i + 1
			for IsDigit(JSONByte(b, end)) {
				end++
			}
			if next := JSONByte(b, end); (c != '0' || end == i+1) && next != '.' && next|0x20 != 'e' {
				i = end
				break
			}
			i = skipNumber(b, i)
			if i < 0 {
				return NotJSON
			}
		case c == '{':
			if depth == maxDepth {
				return TooDeep
			}
			i = SkipJSONBlanks(b, i+1)
			if JSONByte(b, i) == '}' {
				i++
				break
			}
			depth++
			objects = objects<<1 | 1
			if strict != nil {
				strict.open(depth)
			}
			goto key
		case c == '[':
			if depth == maxDepth {
				return TooDeep
			}
			i = SkipJSONBlanks(b, i+1)
			if JSONByte(b, i) == ']' {
				i++
				break
			}
			depth++
			objects <<= 1
			continue
		default:
			if value := SkipJSONBlanks(b, i); value > i && depth > outer {
				i = value
				continue
			}
			start := i
			i = skipScalar(b, i)
			if i < 0 || strict != nil && c <= '9' && !fitsAllParsers(b[start:i]) {
				return NotJSON
			}
		}
		// Close the containers that end here.
		for {
			if depth == outer {
				return i
			}
			c := JSONByte(b, i)
			if c == ',' {
				i++
				if objects&1 != 0 {
					goto key
				}
				break
			}
			if c != ']'+byte(objects&1)*('}'-']') {
				next := SkipJSONBlanks(b, i)
				if next == i {
					return NotJSON
				}
				i = next
				continue
			}
			if c == '}' && strict != nil && !strict.close(depth) {
				return NotJSON
			}
			i++
			depth--
			objects >>= 1
		}
		continue
	key:
		if JSONByte(b, i) == '"' && strict == nil {
			end := skipPlain(b, i+1)
			if JSONByte(b, end) == '"' && JSONByte(b, end+1) == ':' {
				i = end + 2
				continue
			}
		}
		i = skipKey(b, SkipJSONBlanks(b, i), strict)
		if i < 0 {
			return NotJSON
		}
	}
}

// skipKey returns the offset after the colon that follows the key at b[i], or -1.
func skipKey(b []byte, i int, strict *keys) int {
	key := i
	i = skipString(b, i, strict != nil)
	if i < 0 || strict != nil && !strict.add(b[key+1:i-1]) {
		return -1
	}
	i = SkipJSONBlanks(b, i)
	if JSONByte(b, i) != ':' {
		return -1
	}
	return i + 1
}

// skipScalar returns the offset after the number, boolean or null that starts at b[i], or -1.
func skipScalar(b []byte, i int) int {
	switch JSONByte(b, i) {
	case 't':
		return skipLiteral(b, i, "true")
	case 'f':
		return skipLiteral(b, i, "false")
	case 'n':
		return skipLiteral(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipLiteral(b []byte, i int, literal string) int {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return -1
	}
	return i + len(literal)
}
