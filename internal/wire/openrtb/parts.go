package openrtb

import "adbuffer/internal/wire/syntax"

// kind is a JSON type. The zero value is any type. null has every kind.
type kind uint8

const (
	anyKind kind = iota
	textKind
	numberKind
	integerKind // of 32 bits: some parsers read no longer one
	objectKind
	arrayKind
)

// of reports whether a JSON value has the kind.
func (k kind) of(value []byte) bool {
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
	const digits = 10 // of either limit
	if len(value) > digits {
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

// maxLeftOut is how many malformed parts of a document are left out. A document with more of them is malformed.
const maxLeftOut = 256

// maxPartID is how many bytes of JSON the id of a part may have to be known.
const maxPartID = 256

// check notes that what is around s.body[i:end], a value at n, is malformed if the value does not have n's kind.
func (s *scanner) check(n *node, i, end int) {
	value := s.body[i:end]
	switch {
	case value[0] == 'n':
		// A parser may take a required member that is null for a missing one.
		s.malformed = s.malformed || n.isRequired
	case !n.kind.of(value):
		s.malformed = true
	case n.isPartID && len(value) <= maxPartID:
		s.id = span{i, end}
	}
}

// parts examines the array at s.body[i], whose elements are at n, and leaves out those that are malformed. What
// is around the array is malformed if no element stays.
func (s *scanner) parts(i, depth int, n *node) int {
	outer := s.malformed
	i = syntax.SkipJSONBlanks(s.body, i+1)
	if syntax.JSONByte(s.body, i) == ']' {
		return i + 1
	}
	some, kept := false, i // whether an element stays, and the end of the last one
	for {
		start, before := i, len(s.facts.leftOut)
		s.malformed, s.id = false, span{}
		i = s.value(i, depth, n, false)
		if i < 0 {
			return -1
		}
		end, left := i, s.malformed
		if !left {
			some = true
		} else if before == len(s.facts.leftOut) && before <= maxLeftOut { // it is not the parts in it that are malformed
			s.facts.leftOut = append(s.facts.leftOut, s.id)
		}
		i = syntax.SkipJSONBlanks(s.body, i)
		switch syntax.JSONByte(s.body, i) {
		case ']':
			if left {
				s.facts.cut(kept, end)
			}
			s.malformed, s.id = outer || !some || len(s.facts.leftOut) > maxLeftOut, span{}
			return i + 1
		case ',':
			i = syntax.SkipJSONBlanks(s.body, i+1)
			if left {
				s.facts.cut(start, i)
			} else {
				kept = end
			}
		default:
			return s.fail(Syntax)
		}
	}
}

// cut leaves out body[from:to], which is behind the start of every earlier cut or holds it.
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

// withoutCuts returns body[of.start:of.end] without the parts that are left out. It moves the rest within body.
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
