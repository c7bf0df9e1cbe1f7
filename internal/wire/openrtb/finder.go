package openrtb

import (
	"iter"

	"adbuffer/internal/wire/syntax"
)

// Finder finds one member of bodies. Any number of goroutines may use it.
type Finder struct {
	paths Paths
	node  *node
}

// NewFinder returns a Finder for path, which has no "*".
func NewFinder(path Path) *Finder {
	f := new(Finder)
	f.paths.Member(path)
	f.node = f.paths.node(path)
	return f
}

// Find returns the first such member's value, body[start:end], without blanks around it. start is end if
// it finds none. It reads no further than to the comma or brace after the value: what follows need not be
// JSON, and may hold the member again.
func (f *Finder) Find(body []byte) (start, end int) {
	facts := AcquireFacts()
	defer facts.Release()
	facts.reset(&f.paths)
	s := scanner{body: body, facts: facts, only: f.node}
	s.document(&f.paths.root)
	return s.found.start, s.found.end
}

// AppendText appends the content of a string without its escapes, or any other value as it is. Equal
// strings in different spellings have equal texts.
func AppendText(b, value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return append(b, value...)
	}
	return appendUnescaped(b, value[1:len(value)-1])
}

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
