package httpheader

import (
	"iter"
)

// Next splits the first line off block, lines of "Name: value\r\n" with any blanks around the value. name is
// nil at the end of the block and at a line that has not this form.
func Next(block []byte) (name, value, rest []byte) {
	colon := 0
	for colon < len(block) && block[colon] != ':' {
		colon++
	}
	if colon == 0 || colon == len(block) {
		return nil, nil, nil
	}
	next := nextLine(block, colon)
	if next == 0 {
		return nil, nil, nil
	}
	return block[:colon], trim(block[colon+1 : next-2]), block[next:]
}

// nextLine returns where the line after the one that i is in starts: behind the CRLF in block after i. It is 0
// if there is none, or a lone CR or LF before it. For lines as short as header fields this is faster than
// bytes.IndexByte.
func nextLine(block []byte, i int) int {
	for {
		i += controlAt(block[i:])
		switch {
		case i+1 >= len(block):
			return 0
		case block[i] == '\r' && block[i+1] == '\n':
			return i + 2
		case block[i] == '\r' || block[i] == '\n':
			return 0
		}
		i++
	}
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
		if EqualFold(n, name) {
			return value, true
		}
	}
	return nil, false
}
