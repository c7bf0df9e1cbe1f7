package http2

import "adbuffer/internal/httpsyntax"

// block is a header block of an answer as it was read: checked field by field,
// but not yet held against what its stream expects.
type block struct {
	limit     int // of size
	maxFields int // of regular

	size      int    // names, values and 32 for each field
	fields    []byte // the regular fields as lines of HTTP/1; up to limit
	status    int    // 0 for none
	length    int    // content-length, -1 for none
	regular   int    // fields without a colon that have come
	tooLarge  bool   // size is over limit; fields and what follows mean nothing
	tooMany   bool   // regular is over maxFields; fields and what follows mean nothing
	malformed string // the first rule that is broken, empty for none
	ofHTTP2   bool   // that is a rule of HTTP/2, and not one of any HTTP
}

// reset makes b ready for another block, and keeps its memory.
func (b *block) reset() {
	*b = block{limit: b.limit, maxFields: b.maxFields, fields: b.fields[:0], length: -1}
}

// add takes a field.
func (b *block) add(class class, name, value []byte) {
	b.size += len(name) + len(value) + entryOverhead
	if b.size > b.limit {
		b.tooLarge = true
	}
	if b.tooLarge || b.tooMany {
		return
	}
	switch class {
	case ordinary:
	case contentLength:
		n, ok := httpsyntax.ParseNumber(value, httpsyntax.MaxNumber)
		if !ok || b.length >= 0 {
			b.fault("a malformed or repeated content-length", false)
			return
		}
		b.length = n
	case status:
		b.addStatus(value)
		return
	default:
		b.fault(malformed[class], class != badValue)
		return
	}
	if b.regular++; b.regular > b.maxFields {
		b.tooMany = true
		return
	}
	b.fields = httpsyntax.AppendField(b.fields, name, value)
}

// addStatus takes :status, which stands once, in front of all regular fields,
// and is three digits. RFC 9113, section 8.3.
func (b *block) addStatus(v []byte) {
	status, ok := httpsyntax.ParseStatus(v)
	switch {
	case b.status != 0:
		b.fault("two :status fields", true)
	case b.regular > 0:
		b.fault("a pseudo-field behind a regular field", true)
	case !ok:
		b.fault("a malformed :status", true)
	default:
		b.status = status
	}
}

func (b *block) fault(rule string, ofHTTP2 bool) {
	if b.malformed == "" {
		b.malformed, b.ofHTTP2 = rule, ofHTTP2
	}
}

// maxBlock bounds a header block, encoded and decoded, for a limit on its header
// list. A list within the limit is shorter when encoded. A longer one costs its
// exchange, but must be decoded, since it changes the table. One that is much
// longer, if only when decoded, costs the connection: a byte can stand for a field
// of 4 KB. RFC 9113, section 10.5.1, and RFC 7541, section 7.3.
func maxBlock(maxHeaderList int) int { return 4*maxHeaderList + maxFrameSize }
