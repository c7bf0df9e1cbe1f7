package openrtb

import (
	"iter"

	"adbuffer/internal/wire/syntax"
)

// Finder finds the member with a certain path in bodies. Any number of goroutines may use it.
type Finder struct {
	paths Paths
	node  *node
}

// NewFinder returns a Finder for path, which must not contain "*".
func NewFinder(path Path) *Finder {
	f := new(Finder)
	f.paths.Member(path)
	f.node = f.paths.node(path)
	return f
}

// Find returns the value of the first such member, which is body[start:end] without surrounding blanks.
// start equals end if Find finds no such member, and why says whether that is because the body is unreadable. Find
// reads no further than the comma or brace after the value, so it neither checks the rest of the body nor detects a
// second such member.
func (f *Finder) Find(body []byte) (start, end int, why Reason) {
	facts := AcquireFacts()
	defer facts.Release()
	facts.reset(&f.paths)
	s := scanner{body: body, facts: facts, only: f.node}
	s.document(&f.paths.root)
	return s.found.start, s.found.end, s.reason
}

// AppendText appends the content of a string, without quotes and escapes, or any other value unchanged. So
// equal strings have equal texts, however they are escaped.
func AppendText(b, value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return append(b, value...)
	}
	return appendUnescaped(b, value[1:len(value)-1])
}

// Elements yields the elements of an array. value is valid JSON without surrounding blanks; Elements yields nothing if
// it is no array.
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
