package http2codec

import (
	"bytes"

	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/syntax"
)

// RequestBlock is the decoded header block of a client's request: its header, or its trailers. Decoder.Decode fills it:
// it checks each field by RFC 9113, section 8, and converts the header to HTTP/1.1's form: names in their usual case,
// Host first, the values of Cookie joined.
//
// The caller must call EndHeader or EndTrailers, which check the block as a whole, and then check TooLarge and
// Malformed before it uses the other fields.
type RequestBlock struct {
	Limit int // the highest allowed Size

	Size      int           // bytes of names and values, plus EntryOverhead for each field
	Lines     []header.Line // the lines of the header
	Length    int           // content-length, -1 for none
	TooLarge  bool          // Size is over Limit; the values below mean nothing
	Malformed string        // the first violated rule, empty for none
	Continue  bool          // expect: 100-continue

	hosts   int            // host fields so far
	regular int            // number of fields that are not pseudo-fields
	pseudo  [4]pseudoValue // in the order of their classes, from method
	text    []byte         // the values of pseudo
	cookie  []byte         // the values of all cookie fields, joined
	lines   []byte         // the header, and after it method and path
	parts   [3]int         // offsets in lines where the header, the method and the path end
}

// pseudoValue is a pseudo-field's value: text[at:end].
type pseudoValue struct {
	at, end int
	given   bool
}

// Reset makes b ready for another block, and keeps its memory.
func (b *RequestBlock) Reset() {
	*b = RequestBlock{Limit: b.Limit, Length: -1, text: b.text[:0], cookie: b.cookie[:0], lines: b.lines[:0], Lines: b.Lines[:0]}
}

// Free releases the memory between blocks.
func (b *RequestBlock) Free() { b.text, b.cookie, b.lines, b.Lines = nil, nil, nil, nil }

func (b *RequestBlock) tooLong() bool { return b.Size > MaxBlock(b.Limit) }

func (b *RequestBlock) violation(rule string) {
	if b.Malformed == "" {
		b.Malformed = rule
	}
}

func (b *RequestBlock) add(class class, name, value []byte) {
	b.Size += len(name) + len(value) + EntryOverhead
	b.TooLarge = b.TooLarge || b.Size > b.Limit
	if b.TooLarge || b.Malformed != "" {
		return
	}
	switch class {
	case method, scheme, authority, path:
		b.addPseudo(class, value)
		return
	case ContentLength:
		n, ok := syntax.ParseNumber(value, syntax.MaxNumber)
		if !ok || b.Length >= 0 {
			b.violation("a malformed or repeated content-length")
			return
		}
		b.Length = n
	case ordinary:
	default:
		b.violation(malformed[class])
		return
	}
	b.regular++
	if b.regular == 1 && b.has(authority) {
		b.addLine([]byte("host"), b.value(authority))
	}
	b.addRegular(name, value)
}

// addPseudo records a pseudo-field. Each occurs once, before all other fields. RFC 9113, section
// 8.3.
func (b *RequestBlock) addPseudo(class class, value []byte) {
	p := &b.pseudo[class-method]
	switch {
	case p.given:
		b.violation("a repeated pseudo-field")
	case b.regular > 0:
		b.violation("a pseudo-field after a regular field")
	default:
		at := len(b.text)
		b.text = append(b.text, value...)
		*p = pseudoValue{at, len(b.text), true}
	}
}

func (b *RequestBlock) has(class class) bool { return b.pseudo[class-method].given }

func (b *RequestBlock) value(class class) []byte {
	p := b.pseudo[class-method]
	return b.text[p.at:p.end]
}

// addRegular records a field that is not a pseudo-field. RFC 9113, sections 8.2.2, 8.2.3 and 8.3.1.
func (b *RequestBlock) addRegular(name, value []byte) {
	switch string(name) {
	case "te":
		if string(value) != "trailers" {
			b.violation("te is not trailers")
			return
		}
	case "cookie":
		if len(b.cookie) > 0 {
			b.cookie = append(b.cookie, "; "...)
		}
		b.cookie = append(b.cookie, value...)
		return
	case "host":
		b.hosts++
		if b.hosts > 1 {
			b.violation("a repeated host")
			return
		}
		if b.has(authority) {
			if named := b.value(authority); !bytes.Equal(value, named) && !header.SameAuthority(value, named, b.value(scheme)) {
				b.violation("host differs from :authority")
			}
			return
		}
		if len(value) == 0 {
			b.violation("an empty host")
			return
		}
	case "expect":
		b.Continue = b.Continue || syntax.EqualFold(value, "100-continue")
	}
	b.addLine(name, value)
}

// addLine appends a field to lines. Its name, which is in lower case, gets the usual case of
// HTTP/1.1.
func (b *RequestBlock) addLine(name, value []byte) {
	at := len(b.lines)
	b.lines = syntax.AppendField(b.lines, name, value)
	b.Lines = append(b.Lines, header.Line{Name: len(name), End: len(b.lines)})
	first := true
	for i, c := range b.lines[at : at+len(name)] {
		if first && 'a' <= c && c <= 'z' {
			b.lines[at+i] = c - 'a' + 'A'
		}
		first = c == '-'
	}
}

// EndHeader makes the checks that need the whole header of a request. last says that no body
// follows.
func (b *RequestBlock) EndHeader(last bool) {
	if b.TooLarge {
		return
	}
	connect := string(b.value(method)) == "CONNECT"
	hasTarget := b.has(scheme) || b.has(path)
	switch {
	case !b.has(method):
		b.violation("no :method")
	case connect && (hasTarget || !b.has(authority)):
		b.violation("CONNECT with :scheme or :path, or without :authority")
	case connect:
	case !b.has(scheme), len(b.value(path)) == 0:
		b.violation("no :scheme, or no :path")
	case b.has(authority) && len(b.value(authority)) == 0:
		b.violation("an empty :authority")
	case !syntax.IsHTTP(b.value(scheme)):
		b.violation("the scheme is neither http nor https")
	case last && b.Length > 0:
		b.violation("a content-length without a body")
	}
	if b.regular == 0 && b.has(authority) {
		b.addLine([]byte("host"), b.value(authority))
	}
	if len(b.cookie) > 0 {
		b.addLine([]byte("cookie"), b.cookie)
	}
	b.lines = append(b.lines, "\r\n"...)
	b.parts[0] = len(b.lines)
	b.lines = append(b.lines, b.value(method)...)
	b.parts[1] = len(b.lines)
	b.lines = append(b.lines, b.value(path)...)
	b.parts[2] = len(b.lines)
}

// EndTrailers checks the trailers of a request, which have no pseudo-fields, and drops them. RFC
// 9113, section 8.1.
func (b *RequestBlock) EndTrailers() {
	for _, p := range b.pseudo {
		if p.given {
			b.violation("a pseudo-field among the trailers")
		}
	}
}

// Take returns the lines of the header with the empty line at the end, the method and the path. All three are in b's
// memory, which becomes *to. In exchange, b gets the memory of *to.
func (b *RequestBlock) Take(to *[]byte) (lines, method, path []byte) {
	b.lines, *to = (*to)[:0], b.lines
	all := *to
	return all[:b.parts[0]], all[b.parts[0]:b.parts[1]], all[b.parts[1]:b.parts[2]]
}
