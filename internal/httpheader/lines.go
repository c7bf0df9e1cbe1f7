package httpheader

import (
	"bytes"
	"iter"
)

// Next splits the first line off block, lines as AppendRequest writes them. name is nil at the end of the
// block, and at a line that AppendRequest did not write.
func Next(block []byte) (name, value, rest []byte) {
	colon := bytes.IndexByte(block, ':')
	if colon < 1 {
		return nil, nil, nil
	}
	end := bytes.IndexByte(block[colon:], '\r')
	if end < 2 || colon+end+2 > len(block) {
		return nil, nil, nil
	}
	return block[:colon], block[colon+2 : colon+end], block[colon+end+2:]
}

// Lines returns the names and values of block, lines as AppendRequest writes them.
func Lines(block []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for {
			name, value, rest := Next(block)
			if name == nil || !yield(name, value) {
				return
			}
			block = rest
		}
	}
}
