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
func skipValue(b []byte, i, depth, maxDepth int, strict *keys) int {
	var objects uint64 // a bit for each open container, the innermost in the lowest bit: 1 = an object
	outer := depth
	for {
		// b[i] starts a value.
		switch c := JSONByte(b, i); c {
		case '"':
			i = skipString(b, i, strict != nil)
		case '{', '[':
			if depth == maxDepth {
				return TooDeep
			}
			depth++
			objects <<= 1
			i = SkipJSONBlanks(b, i+1)
			if c == '{' {
				objects |= 1
				if JSONByte(b, i) != '}' {
					if strict != nil {
						strict.open(depth)
					}
					i = skipKey(b, i, strict)
					if i < 0 {
						return NotJSON
					}
					continue
				}
			} else if JSONByte(b, i) != ']' {
				continue
			}
			i++
			depth--
			objects >>= 1
		case 't':
			i = skipLiteral(b, i, "true")
		case 'f':
			i = skipLiteral(b, i, "false")
		case 'n':
			i = skipLiteral(b, i, "null")
		default:
			start := i
			i = skipNumber(b, i)
			if strict != nil && i >= 0 && !fitsAllParsers(b[start:i]) {
				return NotJSON
			}
		}
		if i < 0 {
			return NotJSON
		}
		// Close the containers that end here.
		for {
			if depth == outer {
				return i
			}
			i = SkipJSONBlanks(b, i)
			c := JSONByte(b, i)
			if c == ',' {
				i = SkipJSONBlanks(b, i+1)
				if objects&1 != 0 {
					i = skipKey(b, i, strict)
					if i < 0 {
						return NotJSON
					}
				}
				break
			}
			if c != ']'+byte(objects&1)*('}'-']') || c == '}' && strict != nil && !strict.close(depth) {
				return NotJSON
			}
			i++
			depth--
			objects >>= 1
		}
	}
}

// skipKey returns the offset of the value that follows the key at b[i], or -1.
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
	return SkipJSONBlanks(b, i+1)
}

func skipLiteral(b []byte, i int, literal string) int {
	if len(b)-i < len(literal) || string(b[i:i+len(literal)]) != literal {
		return -1
	}
	return i + len(literal)
}
