package http2codec

import "adbuffer/internal/wire/syntax"

// ResponseBlock is a decoded header block of a response. Each field is checked, but not yet the
// block as a whole.
type ResponseBlock struct {
	Limit     int // of Size
	MaxFields int // of Regular

	Size      int    // names, values and 32 for each field
	Fields    []byte // the regular fields as lines of HTTP/1; up to Limit
	Status    int    // 0 for none
	Length    int    // content-length, -1 for none
	Regular   int    // fields without a colon so far
	TooLarge  bool   // Size is over Limit; Fields and the values below mean nothing
	TooMany   bool   // Regular is over MaxFields; Fields and the values below mean nothing
	Malformed string // the first violated rule, empty for none
	OfHTTP2   bool   // the violated rule is one of HTTP/2, and not of all HTTP versions
}

// Reset makes b ready for another block, and keeps its memory.
func (b *ResponseBlock) Reset() {
	*b = ResponseBlock{Limit: b.Limit, MaxFields: b.MaxFields, Fields: b.Fields[:0], Length: -1}
}

func (b *ResponseBlock) add(class class, name, value []byte) {
	b.Size += len(name) + len(value) + EntryOverhead
	if b.Size > b.Limit {
		b.TooLarge = true
	}
	if b.TooLarge || b.TooMany {
		return
	}
	switch class {
	case ordinary:
	case ContentLength:
		n, ok := syntax.ParseNumber(value, syntax.MaxNumber)
		if !ok || b.Length >= 0 {
			b.violation("a malformed or repeated content-length", false)
			return
		}
		b.Length = n
	case status:
		b.addStatus(value)
		return
	default:
		b.violation(malformed[class], class != badValue)
		return
	}
	b.Regular++
	if b.Regular > b.MaxFields {
		b.TooMany = true
		return
	}
	b.Fields = syntax.AppendField(b.Fields, name, value)
}

func (b *ResponseBlock) tooLong() bool { return b.Size > MaxBlock(b.Limit) }

// addStatus records :status, which occurs once, before all regular fields, and has three digits.
// RFC 9113, section 8.3.
func (b *ResponseBlock) addStatus(v []byte) {
	status, ok := syntax.ParseStatus(v)
	switch {
	case b.Status != 0:
		b.violation("two :status fields", true)
	case b.Regular > 0:
		b.violation("a pseudo-field after a regular field", true)
	case !ok:
		b.violation("a malformed :status", true)
	default:
		b.Status = status
	}
}

func (b *ResponseBlock) violation(rule string, ofHTTP2 bool) {
	if b.Malformed == "" {
		b.Malformed, b.OfHTTP2 = rule, ofHTTP2
	}
}

// MaxBlock bounds a header block, encoded and decoded, for a limit on its header list. A list
// within the limit is shorter when encoded. A longer list fails its exchange, but must be decoded,
// since it changes the table. A much longer list, even if only after decoding, closes the
// connection: one byte can stand for a field of 4 KB. RFC 9113, section 10.5.1, and RFC 7541,
// section 7.3.
func MaxBlock(maxHeaderList int) int { return 4*maxHeaderList + MaxFrameSize }
