package syntax

import "iter"

// AppendField appends the line "name: value\r\n" to dst.
func AppendField(dst, name, value []byte) []byte {
	dst = append(append(dst, name...), ": "...)
	return append(append(dst, value...), "\r\n"...)
}

// CutField splits the first line off block, which consists of lines "name: value\r\n" with any
// blanks around the values. name is nil at the end of the block and at a line without this form.
func CutField(block []byte) (name, value, rest []byte) {
	colon := 0
	for colon < len(block) && block[colon] != ':' {
		colon++
	}
	if colon == 0 || colon == len(block) {
		return nil, nil, nil
	}
	next := NextLine(block, colon)
	if next == 0 {
		return nil, nil, nil
	}
	return block[:colon], Trim(block[colon+1 : next-2]), block[next:]
}

// NextLine returns the start of the line after the line that holds block[i]: the offset after the first CRLF from i
// on. It returns 0 without a CRLF, or if a lone CR or LF comes before it. For lines as short as header fields this is
// faster than bytes.IndexByte.
func NextLine(block []byte, i int) int {
	for {
		i += ControlAt(block[i:])
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

// Fields returns the names and values of block, as CutField reads them.
func Fields(block []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for name, value, rest := CutField(block); name != nil; name, value, rest = CutField(rest) {
			if !yield(name, value) {
				return
			}
		}
	}
}

// KeepFields returns the lines of block whose names keep accepts, in the memory of block.
func KeepFields(block []byte, keep func(name []byte) bool) []byte {
	kept := block[:0]
	for name, _, rest := CutField(block); name != nil; name, _, rest = CutField(block) {
		if keep(name) {
			kept = append(kept, block[:len(block)-len(rest)]...)
		}
		block = rest
	}
	return kept
}

// FindField returns the value of the first field of block with this name, in any case. ok is false
// without such a field.
func FindField(block []byte, name string) (value []byte, ok bool) {
	for n, value := range Fields(block) {
		if EqualFold(n, name) {
			return value, true
		}
	}
	return nil, false
}
