package openrtb

import "adbuffer/internal/wire/syntax"

// kind is a JSON type. null is of every kind.
type kind uint8

const (
	anyKind kind = iota
	textKind
	numberKind
	integerKind // an integer of 32 bits, since some parsers read no larger one
	objectKind
	arrayKind
)

// matches reports whether a JSON value is of kind k.
func (k kind) matches(value []byte) bool {
	switch c := value[0]; k {
	case textKind:
		return c == '"'
	case numberKind:
		return c == '-' || syntax.IsDigit(c)
	case integerKind:
		return isInteger(value)
	case objectKind:
		return c == '{'
	case arrayKind:
		return c == '['
	}
	return true
}

// isInteger reports whether a JSON value is an integer of 32 bits, written without fraction and exponent.
func isInteger(value []byte) bool {
	limit := uint64(1<<31 - 1)
	if value[0] == '-' {
		value, limit = value[1:], 1<<31
	}
	const limitDigits = 10
	if len(value) > limitDigits {
		return false
	}
	n := uint64(0)
	for _, c := range value {
		if !syntax.IsDigit(c) {
			return false
		}
		n = 10*n + uint64(c-'0')
	}
	return n <= limit
}

// maxLeftOut is how many malformed entries of a document are left out. A document with more malformed entries is
// itself malformed.
const maxLeftOut = 256

// maxEntryID is the length, in bytes of JSON, up to which the id of an entry is recorded.
const maxEntryID = 256

// check checks the kind of s.body[i:end], a value at n. If it is wrong, the entry around the value is malformed.
func (s *scanner) check(n *node, i, end int) {
	value := s.body[i:end]
	switch {
	case value[0] == 'n':
		// A parser may treat a required member that is null as missing.
		s.malformed = s.malformed || n.isRequired
	case !n.kind.matches(value):
		s.malformed = true
	case n.isEntryID && len(value) <= maxEntryID:
		s.id = span{i, end}
	}
}

// entries examines the array at s.body[i], whose elements are at n, and leaves out malformed elements. If no element
// remains, the entry around the array is malformed.
func (s *scanner) entries(i, depth int, n *node) int {
	outer := s.malformed
	i = syntax.SkipJSONBlanks(s.body, i+1)
	if syntax.JSONByte(s.body, i) == ']' {
		return i + 1
	}
	anyKept, kept := false, i // whether an element is kept, and the end of the last kept element
	for {
		start, before := i, len(s.facts.leftOut)
		s.malformed, s.id = false, span{}
		i = s.value(i, depth, n, false)
		if i < 0 {
			return -1
		}
		end, leftOut := i, s.malformed
		if !leftOut {
			anyKept = true
		} else if before == len(s.facts.leftOut) && before <= maxLeftOut { // no entry inside the element has been recorded
			s.facts.leftOut = append(s.facts.leftOut, s.id)
		}
		i = syntax.SkipJSONBlanks(s.body, i)
		switch syntax.JSONByte(s.body, i) {
		case ']':
			if leftOut {
				s.facts.cut(kept, end)
			}
			s.malformed, s.id = outer || !anyKept || len(s.facts.leftOut) > maxLeftOut, span{}
			return i + 1
		case ',':
			i = syntax.SkipJSONBlanks(s.body, i+1)
			if leftOut {
				s.facts.cut(start, i)
			} else {
				kept = end
			}
		default:
			return s.fail(Syntax)
		}
	}
}

// cut leaves out body[from:to]. Earlier cuts that start at from or later lie within body[from:to], and are replaced.
func (f *Facts) cut(from, to int) {
	n := len(f.cuts)
	for n > 0 && f.cuts[n-1].start >= from {
		n--
	}
	f.cuts = f.cuts[:n]
	if n <= maxLeftOut { // with more, the document is malformed
		f.cuts = append(f.cuts, span{from, to})
	}
}

// withoutCuts returns body[of.start:of.end] without the cuts. It moves the remaining bytes together within body.
func (f *Facts) withoutCuts(body []byte, of span) []byte {
	if len(f.cuts) == 0 {
		return body[of.start:of.end:of.end]
	}
	out, from := body[of.start:of.start], of.start
	for _, c := range f.cuts {
		out, from = append(out, body[from:c.start]...), c.end
	}
	return append(out, body[from:of.end]...)
}
