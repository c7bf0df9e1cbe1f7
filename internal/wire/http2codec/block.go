package http2codec

import "adbuffer/internal/wire/syntax"

// ResponseBlock is the decoded header block of an SSP's response: a header or trailers. Decoder.Decode fills it, and
// checks each field by itself. It also checks that :status and content-length occur at most once, and that :status
// comes before the regular fields.
//
// The caller must check TooLarge, TooMany and Malformed before it uses the other fields. It must also check what differs
// between the blocks of a response: a header needs a :status, trailers must have none.
type ResponseBlock struct {
	Limit     int // the highest allowed Size
	MaxFields int // the highest allowed Regular

	Size      int    // bytes of names and values, plus EntryOverhead for each field
	Fields    []byte // the regular fields as lines of HTTP/1; up to Limit
	Status    int    // of :status, 0 for none
	Length    int    // content-length, -1 for none
	Regular   int    // number of fields that are not pseudo-fields
	TooLarge  bool   // Size is over Limit; Fields and the values below mean nothing
	TooMany   bool   // Regular is over MaxFields; Fields and the values below mean nothing
	Malformed string // the first violated rule, empty for none
	OfHTTP2   bool   // the violated rule exists only in HTTP/2, so the request may succeed over HTTP/1
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

// MaxBlock returns the limit above which a header block ends the connection. It applies both to the encoded size and to
// the decoded size. maxHeaderList is the limit on header lists above which only the exchange fails.
//
// A block over maxHeaderList must still be decoded, since it changes the dynamic table. But decoding needs a bound too,
// since one byte can stand for a field of 4 KB. With four times maxHeaderList, a list that is somewhat too long does not
// end the other exchanges of the connection, and a hostile one costs at most the decoding of four long lists. RFC 9113,
// section 10.5.1, and RFC 7541, section 7.3.
func MaxBlock(maxHeaderList int) int { return 4*maxHeaderList + MaxFrameSize }
