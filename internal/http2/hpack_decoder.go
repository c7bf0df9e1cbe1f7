package http2

import (
	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// decoder reads header blocks: RFC 7541. It makes no strings: fields are handed
// over as bytes that live until the next one. Only the reader uses it.
type decoder struct {
	table decoderTable
	text  text // Huffman-coded strings of the field in hand, decoded
}

// text is a buffer for hpack.HuffmanDecode.
type text []byte

// Write appends p.
func (t *text) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	return len(p), nil
}

func compressionError(text string) *connError { return &connError{h2.ErrCodeCompression, text} }

// decode reads the header block p and adds its fields to b. After an error the
// table is worth nothing, and so is the connection. RFC 7541, section 3.1.
func (d *decoder) decode(p []byte, b *block) *connError {
	first := true // size updates may stand only in front: section 4.2
	for len(p) > 0 {
		var err *connError
		switch c := p[0]; {
		case c&0x80 != 0: // indexed: section 6.1
			p, err = d.indexed(p, b)
		case c&0xc0 == 0x40: // literal, to be indexed: section 6.2.1
			p, err = d.literal(p, 6, true, b)
		case c&0xe0 == 0x20: // size update: section 6.3
			if !first {
				return compressionError("a table size update behind a field")
			}
			p, err = d.sizeUpdate(p)
			if err != nil {
				return err
			}
			continue
		default: // literal, not or never to be indexed: sections 6.2.2 and 6.2.3
			p, err = d.literal(p, 4, false, b)
		}
		if err != nil {
			return err
		}
		first = false
	}
	return nil
}

func (d *decoder) sizeUpdate(p []byte) ([]byte, *connError) {
	n, p, ok := readInteger(p, 5)
	if !ok || n > maxTableSize {
		return nil, compressionError("a table size over the limit")
	}
	d.table.setMax(n)
	return p, nil
}

func (d *decoder) indexed(p []byte, b *block) ([]byte, *connError) {
	i, p, ok := readInteger(p, 7)
	if !ok || i == 0 {
		return nil, compressionError("a malformed index")
	}
	if i < len(staticTable) {
		e := &staticTable[i]
		b.add(e.class, e.name, e.value)
		return p, nil
	}
	e := d.table.entry(i - len(staticTable))
	if e == nil {
		return nil, compressionError("an index beyond the table")
	}
	name, value := d.table.text(e)
	b.add(e.class, name, value)
	return p, nil
}

func (d *decoder) literal(p []byte, prefix uint, index bool, b *block) ([]byte, *connError) {
	i, p, ok := readInteger(p, prefix)
	if !ok {
		return nil, compressionError("a malformed index")
	}
	d.text = d.text[:0]
	var name []byte
	nameLen := -1 // of a name that stands at the start of d.text
	switch {
	case i == 0:
		var coded bool
		if name, coded, p, ok = readString(p); !ok {
			return nil, compressionError("a truncated field name")
		}
		if coded {
			if nameLen, ok = d.huffman(name); !ok {
				return nil, compressionError("a malformed Huffman code")
			}
		}
	case i < len(staticTable):
		name = staticTable[i].name
	default:
		e := d.table.entry(i - len(staticTable))
		if e == nil {
			return nil, compressionError("an index beyond the table")
		}
		name, _ = d.table.text(e)
		if index { // putting the field into the table may overwrite the name
			d.text = append(d.text, name...)
			nameLen = len(name)
		}
	}
	value, coded, p, ok := readString(p)
	if !ok {
		return nil, compressionError("a truncated field value")
	}
	at := len(d.text)
	if coded {
		if _, ok = d.huffman(value); !ok {
			return nil, compressionError("a malformed Huffman code")
		}
		value = d.text[at:]
	}
	if nameLen >= 0 {
		name = d.text[:nameLen] // only now: d.text may have moved
	}
	class := classify(name, value)
	if index {
		d.table.insert(name, value, class)
	}
	b.add(class, name, value)
	return p, nil
}

// huffman decodes s to the end of d.text.
func (d *decoder) huffman(s []byte) (n int, ok bool) {
	n, err := hpack.HuffmanDecode(&d.text, s)
	return n, err == nil
}

// readInteger reads an integer with a prefix of so many bits: RFC 7541,
// section 5.1. ok is false if it is truncated, or so large that it can stand
// for nothing here.
func readInteger(p []byte, prefix uint) (n int, rest []byte, ok bool) {
	if len(p) == 0 {
		return 0, nil, false
	}
	limit := 1<<prefix - 1
	n = int(p[0]) & limit
	p = p[1:]
	if n < limit {
		return n, p, true
	}
	for shift := uint(0); shift <= 21 && len(p) > 0; shift += 7 {
		c := p[0]
		p = p[1:]
		n += int(c&0x7f) << shift
		if c&0x80 == 0 {
			return n, p, true
		}
	}
	return 0, nil, false
}

// readString reads a string: RFC 7541, section 5.2. coded: by Huffman.
func readString(p []byte) (s []byte, coded bool, rest []byte, ok bool) {
	if len(p) == 0 {
		return nil, false, nil, false
	}
	coded = p[0]&0x80 != 0
	n, p, ok := readInteger(p, 7)
	if !ok || n > len(p) {
		return nil, false, nil, false
	}
	return p[:n], coded, p[n:], true
}
