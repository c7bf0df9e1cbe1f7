package httpheader

import (
	"bytes"
	"iter"
)

// Next splits the first line off block, lines of "Name: value\r\n" with any blanks around the value. name is
// nil at the end of the block and at a line that has not this form.
func Next(block []byte) (name, value, rest []byte) {
	colon := bytes.IndexByte(block, ':')
	if colon < 1 {
		return nil, nil, nil
	}
	cr := bytes.IndexByte(block[colon:], '\r') + colon
	if cr < colon || cr+2 > len(block) || block[cr+1] != '\n' {
		return nil, nil, nil
	}
	return block[:colon], trim(block[colon+1 : cr]), block[cr+2:]
}

// Lines returns the names and values of block, lines as Next reads them.
func Lines(block []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for name, value, rest := Next(block); name != nil; name, value, rest = Next(rest) {
			if !yield(name, value) {
				return
			}
		}
	}
}

// Find returns the value of the first line of block called name, in any case. ok is false if there is none.
func Find(block []byte, name string) (value []byte, ok bool) {
	for n, value := range Lines(block) {
		if equalFold(n, name) {
			return value, true
		}
	}
	return nil, false
}
