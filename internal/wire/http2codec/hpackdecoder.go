package http2codec

import (
	"golang.org/x/net/http2/hpack"
)

// Decoder reads header blocks: RFC 7541. It creates no strings: it passes fields as bytes that are valid until the
// next field. Only the connection's reader uses it.
type Decoder struct {
	table    decoderTable
	text     text      // Huffman-coded strings of the current field, decoded
	interned *interned // created by the first such string
}

// NewDecoder returns a decoder with an empty table.
func NewDecoder() Decoder { return Decoder{table: decoderTable{max: MaxTableSize}} }

// text is a buffer for hpack.HuffmanDecode.
type text []byte

// Write appends p.
func (t *text) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	return len(p), nil
}

// Block receives the fields of a header block.
type Block interface {
	add(class class, name, value []byte)
	// tooLong reports whether the block is so long that the connection must end.
	tooLong() bool
}

// Decode reads the header block p and adds its fields to b. After an error the table is invalid,
// and the connection must end. RFC 7541, section 3.1.
func (d *Decoder) Decode(p []byte, b Block) *Error {
	first := true // size updates are allowed only at the start: section 4.2
	for len(p) > 0 {
		var err *Error
		switch c := p[0]; {
		case c&0x80 != 0: // indexed: section 6.1
			p, err = d.indexed(p, b)
		case c&0xc0 == 0x40: // literal, to be indexed: section 6.2.1
			p, err = d.literal(p, 6, true, b)
		case c&0xe0 == 0x20: // size update: section 6.3
			if !first {
				return compressionError("a table size update after a field")
			}
			p, err = d.sizeUpdate(p)
			if err != nil {
				return err
			}
			continue
		default: // literal, not or never to be indexed: sections 6.2.2 and 6.2.3
			p, err = d.literal(p, 4, false, b)
		}
		switch {
		case err != nil:
			return err
		case b.tooLong():
			return FloodError("a header list larger than four times its limit plus 16 KiB")
		}
		first = false
	}
	return nil
}

func (d *Decoder) sizeUpdate(p []byte) ([]byte, *Error) {
	n, p, ok := readInteger(p, 5)
	if !ok || n > MaxTableSize {
		return nil, compressionError("a table size over the limit")
	}
	d.table.setMax(n)
	return p, nil
}

func (d *Decoder) indexed(p []byte, b Block) ([]byte, *Error) {
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

func (d *Decoder) literal(p []byte, prefix uint, index bool, b Block) ([]byte, *Error) {
	i, p, ok := readInteger(p, prefix)
	if !ok {
		return nil, compressionError("a malformed index")
	}
	d.text = d.text[:0]
	var name []byte
	var nameClass class // the field's class if its value is valid
	switch {
	case i == 0:
		name, p, ok = d.string(p)
		if !ok {
			return nil, compressionError("a malformed field name")
		}
		nameClass = classifyName(name)
	case i < len(staticTable):
		name, nameClass = staticTable[i].name, staticTable[i].nameClass
	default:
		e := d.table.entry(i - len(staticTable))
		if e == nil {
			return nil, compressionError("an index beyond the table")
		}
		name, _ = d.table.text(e)
		nameClass = e.nameClass
		if index { // inserting the field into the table may overwrite the name
			d.text = append(d.text, name...)
			name = d.text
		}
	}
	value, p, ok := d.string(p)
	if !ok {
		return nil, compressionError("a malformed field value")
	}
	class := nameClass.with(value)
	if index {
		d.table.insert(name, value, nameClass, class)
	}
	b.add(class, name, value)
	return p, nil
}

// string reads a string: RFC 7541, section 5.2. It is a part of p, of d.text or of d.interned, and
// is valid until the next field.
func (d *Decoder) string(p []byte) (s, rest []byte, ok bool) {
	if len(p) == 0 {
		return nil, nil, false
	}
	coded := p[0]&0x80 != 0
	n, p, ok := readInteger(p, 7)
	if !ok || n > len(p) {
		return nil, nil, false
	}
	s, rest = p[:n], p[n:]
	if !coded || n == 0 {
		return s, rest, true
	}
	if d.interned == nil {
		d.interned = new(interned)
	}
	slot, hash, ok := d.interned.find(s)
	if ok {
		return slot.plain, rest, true
	}
	at := len(d.text)
	if _, err := hpack.HuffmanDecode(&d.text, s); err != nil {
		return nil, nil, false
	}
	plain := d.text[at:]
	slot.put(hash, s, plain)
	return plain, rest, true
}

// readInteger reads an integer with a prefix of this many bits: RFC 7541, section 5.1. ok is false
// if it is truncated, or larger than any valid value.
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
	sum := uint64(n)
	for shift := uint(0); shift < 63 && len(p) > 0; shift += 7 {
		c := p[0]
		p = p[1:]
		sum += uint64(c&0x7f) << shift
		if c&0x80 == 0 {
			return int(sum), p, sum <= maxInteger
		}
	}
	return 0, nil, false
}

// maxInteger is larger than every valid index, length and size.
const maxInteger = 1 << 30

// Shrink releases the memory that an idle decoder does not need. The table's entries stay: the peer
// may use them.
func (d *Decoder) Shrink() {
	d.text, d.interned = nil, nil
	d.table.shrink()
}
