package http2codec

import (
	"bytes"
	"hash/maphash"
	"strconv"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"

	h2 "golang.org/x/net/http2"
)

// Encoder writes header blocks: RFC 7541. Its input is lines of HTTP/1, and its table holds whole lines. A line that
// is in the peer's table costs a hash, a comparison and one or two bytes, and is neither parsed nor checked again.
// Strings are never Huffman-coded. That would save a fifth of a request's bytes, but take more time than the
// encryption of a whole exchange.
//
// The lock of its HTTP/2 connection guards it.
type Encoder struct {
	table encoderTable

	authority      []byte // of the last request
	authorityEntry uint64 // the number of its entry in table; see encoderTable.alive

	// If resized is set, the next block begins with two sizes: smallest, which is the smallest size in the peer's
	// settings since the last block, and the current size. RFC 7541, section 4.2.
	smallest int
	resized  bool

	name []byte // lower-case name of the current field
	// responses says that the encoder writes blocks of responses, whose content-length is one of their fields.
	responses bool
}

// NewEncoder returns an encoder with an empty table.
func NewEncoder() Encoder {
	return Encoder{table: encoderTable{max: MaxTableSize}, smallest: MaxTableSize}
}

// Apply applies the peer's SETTINGS_HEADER_TABLE_SIZE.
func (e *Encoder) Apply(s *SettingsChange) {
	if s.Has[h2.SettingHeaderTableSize] {
		e.setMax(s.SmallestTable)
		e.setMax(s.Value[h2.SettingHeaderTableSize])
	}
}

func (e *Encoder) setMax(n uint32) {
	size := int(min(n, MaxTableSize))
	if size == e.table.max && !e.resized {
		return
	}
	if !e.resized { // the peer knows the previous size
		e.resized, e.smallest = true, size
	}
	e.smallest = min(e.smallest, size)
	e.table.setMax(size)
}

// Representations: RFC 7541, section 6.
const (
	indexedField  = 0x80 // followed by an index of 7 bits
	literalKept   = 0x40 // 6 bits; the peer inserts it into its table
	LiteralOnce   = 0x00 // 4 bits
	literalSecret = 0x10 // 4 bits; no proxy on the path may insert it into a table
	TableSize     = 0x20 // 5 bits
)

// Indices in the static table.
const (
	staticAuthority     = 1
	staticMethod        = 2
	staticGET           = 2
	staticPOST          = 3
	staticPath          = 4
	staticHTTP          = 6
	staticHTTPS         = 7
	staticContentLength = 28
)

// AppendRequest appends the header block of r. ok is false if the header of r is malformed; then the appended bytes
// must be dropped. If synced is false too, e's table no longer matches the peer's table.
func (e *Encoder) AppendRequest(b []byte, r *exchange.Request) (_ []byte, ok, synced bool) {
	inserted, resized := e.table.inserted, e.resized
	b = e.appendResize(b)
	b, ok = e.appendPseudo(b, r)
	if ok {
		b, ok = e.appendLines(b, r.Fields)
	}
	if n := len(r.Body); n > 0 || r.Method == exchange.POST {
		var digits [20]byte
		b = appendInteger(b, LiteralOnce, 4, staticContentLength)
		b = appendString(b, strconv.AppendInt(digits[:0], int64(n), 10))
	}
	return b, ok, ok || inserted == e.table.inserted && !resized
}

// appendResize announces a change of the table's size to the peer.
func (e *Encoder) appendResize(b []byte) []byte {
	if !e.resized {
		return b
	}
	if e.smallest < e.table.max {
		b = appendInteger(b, TableSize, 5, e.smallest)
	}
	b = appendInteger(b, TableSize, 5, e.table.max)
	e.resized, e.smallest = false, e.table.max
	return b
}

// appendLines appends fields, given as lines of HTTP/1.
func (e *Encoder) appendLines(b, lines []byte) (_ []byte, ok bool) {
	for len(lines) > 0 {
		end := bytes.IndexByte(lines, '\n')
		if end < 1 || lines[end-1] != '\r' {
			return b, false
		}
		b, ok = e.appendLine(b, lines[:end-1])
		if !ok {
			return b, false
		}
		lines = lines[end+1:]
	}
	return b, true
}

// appendPseudo appends the pseudo-fields: RFC 9113, section 8.3.1.
func (e *Encoder) appendPseudo(b []byte, r *exchange.Request) (_ []byte, ok bool) {
	switch r.Method {
	case exchange.GET:
		b = append(b, indexedField|staticGET)
	case exchange.POST:
		b = append(b, indexedField|staticPOST)
	default:
		b = append(b, LiteralOnce|staticMethod)
		b = appendString(b, []byte(r.Method.String()))
	}
	if r.Scheme == "https" {
		b = append(b, indexedField|staticHTTPS)
	} else {
		b = append(b, indexedField|staticHTTP)
	}
	if len(r.Authority) == 0 || !syntax.IsVisible(r.Authority) || len(r.Target) == 0 || !syntax.IsVisible(r.Target) {
		return b, false
	}
	b = e.appendAuthority(b, r.Authority)
	// A target differs from request to request, and identifies users.
	b = append(b, literalSecret|staticPath)
	return appendString(b, r.Target), true
}

func (e *Encoder) appendAuthority(b, authority []byte) []byte {
	if !bytes.Equal(authority, e.authority) {
		e.authority = append(e.authority[:0], authority...)
		e.authorityEntry = 0
		b = append(b, LiteralOnce|staticAuthority)
		return appendString(b, authority)
	}
	if e.table.alive(e.authorityEntry) {
		return appendInteger(b, indexedField, 7, e.table.index(e.authorityEntry))
	}
	size := len(":authority") + len(authority) + EntryOverhead
	if !e.table.admits(size) {
		b = append(b, LiteralOnce|staticAuthority)
		return appendString(b, authority)
	}
	e.authorityEntry = e.table.insert(nil, size)
	b = append(b, literalKept|staticAuthority)
	return appendString(b, authority)
}

// appendLine appends a field, given as its line without CRLF.
func (e *Encoder) appendLine(b, line []byte) (_ []byte, ok bool) {
	hash := maphash.Bytes(hashSeed, line)
	seen := e.table.find(hash, line)
	if seen != nil && seen.entry != 0 {
		return appendInteger(b, indexedField, 7, e.table.index(seen.entry)), true
	}
	colon := bytes.IndexByte(line, ':')
	if colon < 1 {
		return b, false
	}
	e.name = e.name[:0]
	for _, c := range line[:colon] {
		lower := syntax.Lower[c]
		if lower == 0 {
			return b, false
		}
		e.name = append(e.name, lower)
	}
	value := syntax.Trim(line[colon+1:])
	if !syntax.IsValue(value) {
		return b, false
	}
	static := int(staticName[string(e.name)])
	first, bits := byte(LiteralOnce), uint(4)
	switch e.rule(e.name, value) {
	case drop:
		return b, true
	case secret:
		first = literalSecret
	case plain:
		size := len(e.name) + len(value) + EntryOverhead
		switch {
		case !e.table.admits(size):
		case seen == nil:
			e.table.note(hash)
		default: // the line is sent for the second time
			first, bits = literalKept, 6
			seen.entry = e.table.insert(line, size)
		}
	}
	b = appendInteger(b, first, bits, static)
	if static == 0 {
		b = appendString(b, e.name)
	}
	return appendString(b, value), true
}

// hashSeed prevents clients from choosing lines whose hashes collide.
var hashSeed = maphash.MakeSeed()

// fieldRule says how a field is sent.
type fieldRule uint8

const (
	plain  fieldRule = iota
	secret           // never inserted into a table
	drop             // not sent
)

// rule decides by the lower-case name. Fields about the connection are not sent (RFC 9113, section
// 8.2.2). Host and Content-Length are not sent either: :authority and adbuffer's own content-length
// replace them.
func (e *Encoder) rule(name, value []byte) fieldRule {
	switch string(name) {
	case "te":
		if string(value) != "trailers" {
			return drop
		}
	case "content-length":
		if !e.responses {
			return drop
		}
	case "host":
		return drop
	case "cookie", "set-cookie", "authorization", "proxy-authorization":
		return secret
	}
	if syntax.IsConnectionSpecific(name) {
		return drop
	}
	return plain
}

// appendInteger appends n with a prefix of this many bits, beside the bits of first: RFC 7541,
// section 5.1.
func appendInteger(b []byte, first byte, bits uint, n int) []byte {
	limit := 1<<bits - 1
	if n < limit {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(limit))
	for n -= limit; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func appendString(b, s []byte) []byte {
	return append(appendInteger(b, 0, 7, len(s)), s...)
}
