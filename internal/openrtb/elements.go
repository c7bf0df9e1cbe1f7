package openrtb

import "iter"

// Elements yields the elements of an array, a valid JSON value without blanks around it. It yields nothing for
// another value.
func Elements(value []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if at(value, 0) != '[' {
			return
		}
		s := scanner{body: value}
		for i := skipBlanks(value, 1); at(value, i) != ']'; {
			end := s.skip(i, 0)
			if end < 0 || !yield(value[i:end]) {
				return
			}
			i = skipBlanks(value, end)
			if at(value, i) == ',' {
				i = skipBlanks(value, i+1)
			}
		}
	}
}
