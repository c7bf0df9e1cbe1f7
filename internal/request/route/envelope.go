package route

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"adbuffer/internal/wire/syntax"
)

// The envelope of parallel-all encloses its entries, which commas separate.
const (
	envelopeStart = `{"results":[`
	envelopeEnd   = `]}`

	envelopeOverhead = len(envelopeStart) + len(envelopeEnd)
)

// entry is one SSP's part of an envelope:
//
//	{"ssp":"a","status":200,"ms":12,"content_type":"application/json","body":{…}}
//	{"ssp":"b","status":204,"ms":9}
//	{"ssp":"c","error":"deadline","ms":150}
//	{"ssp":"d","error":"not_waited"}
//
// The bytes that an SSP sends must not be able to imitate another entry, nor prevent clients from
// reading the other entries.
type entry struct {
	ssp    string
	took   time.Duration
	omitMS bool   // the entry has no member ms
	err    string // "" if there is a response

	status      int
	contentType []byte // empty if unknown
	body        []byte
	form        bodyForm
	bodyBytes   int // upper bound of the body's bytes in the entry
}

// bodyForm is the form of a body in an entry.
type bodyForm uint8

const (
	noBody bodyForm = iota
	jsonBody
	textBody
	binaryBody
)

// maxEscapes bounds how many bytes a string may take beyond twice the body's; above it the body is
// sent as base64. Escapes turn a control character into six bytes. So an SSP cannot fill the budget
// with six times the bytes that it sends.
const maxEscapes = 4 << 10

// maxContentType bounds the Content-Type in an entry. Bytes that are not UTF-8 take three in the
// envelope.
const maxContentType = 256

// describe sets the fields of e from the response's header fields and body. It keeps slices of
// both.
func (e *entry) describe(fields, body []byte) {
	e.contentType, _ = syntax.FindField(fields, "Content-Type")
	e.contentType = e.contentType[:min(len(e.contentType), maxContentType)]
	e.body = body
	_, encoded := syntax.FindField(fields, "Content-Encoding")
	switch {
	case len(body) == 0:
		e.form, e.bodyBytes = noBody, 0
	case encoded || !utf8.Valid(body):
		e.form = binaryBody
	case isJSONType(e.contentType) && syntax.ValidJSON(body):
		e.form, e.bodyBytes = jsonBody, len(body)
	default:
		e.form, e.bodyBytes = textBody, syntax.JSONStringLen(body)
		if e.bodyBytes > 2*len(body)+maxEscapes {
			e.form = binaryBody
		}
	}
	if e.form == binaryBody {
		e.bodyBytes = base64.StdEncoding.EncodedLen(len(body))
	}
}

// isJSONType reports whether a Content-Type is JSON: application/json or a type with the suffix
// +json (RFC 6839, section 3.1), with any parameters.
func isJSONType(v []byte) bool {
	v, _, _ = bytes.Cut(v, []byte{';'})
	v = bytes.TrimRight(v, " \t")
	const suffix = "+json"
	return syntax.EqualFold(v, "application/json") ||
		bytes.IndexByte(v, '/') > 0 && len(v) > len(suffix) && syntax.EqualFold(v[len(v)-len(suffix):], suffix)
}

// append appends the entry.
func (e *entry) append(b []byte) []byte {
	b = append(b, `{"ssp":`...)
	b = syntax.AppendJSONString(b, []byte(e.ssp))
	if e.err != "" {
		b = append(b, `,"error":`...)
		b = syntax.AppendJSONString(b, []byte(e.err))
	} else {
		b = append(b, `,"status":`...)
		b = strconv.AppendInt(b, int64(e.status), 10)
	}
	if !e.omitMS {
		b = append(b, `,"ms":`...)
		b = strconv.AppendInt(b, e.took.Milliseconds(), 10)
	}
	if len(e.contentType) > 0 {
		b = append(b, `,"content_type":`...)
		b = syntax.AppendJSONString(b, e.contentType)
	}
	switch e.form {
	case jsonBody:
		b = append(b, `,"body":`...)
		b = append(b, e.body...)
	case textBody:
		b = append(b, `,"body":`...)
		b = syntax.AppendJSONString(b, e.body)
	case binaryBody:
		b = append(b, `,"body_base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, e.body)
		b = append(b, '"')
	}
	return append(b, '}')
}

// bound returns the maximum number of bytes of the entry, including a comma.
func (e *entry) bound() int {
	const widest = `{"ssp":,"error":,"status":-9223372036854775808,"ms":-9223372036854775808,"content_type":,"body_base64":""},`
	return len(widest) + syntax.JSONStringLen([]byte(e.ssp)) + syntax.JSONStringLen([]byte(e.err)) + syntax.JSONStringLen(e.contentType) + e.bodyBytes
}
