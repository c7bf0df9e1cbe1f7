package openrtb

import (
	"iter"

	"adbuffer/internal/syntax"
)

// Elements yields the elements of an array, a valid JSON value without blanks around it. It yields nothing for
// another value.
func Elements(value []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if syntax.JSONByte(value, 0) != '[' {
			return
		}
		s := scanner{body: value}
		for i := syntax.SkipJSONBlanks(value, 1); syntax.JSONByte(value, i) != ']'; {
			end := s.skip(i, 0)
			if end < 0 || !yield(value[i:end]) {
				return
			}
			i = syntax.SkipJSONBlanks(value, end)
			if syntax.JSONByte(value, i) == ',' {
				i = syntax.SkipJSONBlanks(value, i+1)
			}
		}
	}
}
