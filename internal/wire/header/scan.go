package header

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// Scan reads raw, the unchanged header block after the request line, with its final empty line. An
// empty raw is a block without fields. The error is an *Error; after an error the fields are undefined
// until the next Scan.
//
// The fields are slices of raw, which must not change while they are in use.
func (f *RequestFields) Scan(raw []byte) error {
	end, err := f.ScanStart(raw)
	if err == nil && end < len(raw) {
		err = refuse(RuleUnterminated, nil)
	}
	return err
}

// ScanStart is Scan for the header block that raw begins with. It returns the block's length.
func (f *RequestFields) ScanStart(raw []byte) (end int, err error) {
	f.resetResults(raw)
	var lower [longestName]byte
	for pos := 0; len(raw) > 0; {
		if pos >= len(raw) {
			return 0, refuse(RuleUnterminated, nil)
		}
		nameEnd := pos + fold(&lower, raw[pos:])
		if nameEnd == pos {
			if raw[pos] == '\r' && pos+1 < len(raw) && raw[pos+1] == '\n' {
				end = pos + 2
				f.raw = raw[:end]
				break
			}
			return 0, emptyNameError(raw[pos:])
		}
		if nameEnd == len(raw) || raw[nameEnd] != ':' {
			return 0, nameError(raw[pos:], nameEnd-pos)
		}
		name := raw[pos:nameEnd]

		start := nameEnd + 1
		for start < len(raw) && (raw[start] == ' ' || raw[start] == '\t') {
			start++
		}
		cr := start + syntax.ControlAt(raw[start:])
		if cr+1 >= len(raw) || raw[cr] != '\r' || raw[cr+1] != '\n' {
			return 0, valueError(raw, cr, name)
		}
		if next := cr + 2; next < len(raw) && (raw[next] == ' ' || raw[next] == '\t') {
			return 0, refuse(RuleFold, name)
		}
		stop := cr
		for stop > start && (raw[stop-1] == ' ' || raw[stop-1] == '\t') {
			stop--
		}
		pos = cr + 2
		verbatim := stop == cr && start == nameEnd+2 && raw[nameEnd+1] == ' '
		err := f.add(name, raw[start:stop], pos, verbatim, idOf(&lower, len(name)))
		if err != nil {
			return 0, err
		}
	}
	return end, f.checkWhole()
}

// Line is a line "Name: value\r\n" of a header block: the length of its name, and where the next line
// starts.
type Line struct{ Name, End int }

// Take is Scan for a block that a decoder of HTTP/2 has checked and written as these lines.
func (f *RequestFields) Take(raw []byte, lines []Line) error {
	f.resetResults(raw)
	at := 0
	for _, l := range lines {
		name := raw[at : at+l.Name]
		err := f.add(name, raw[at+l.Name+len(": "):l.End-len("\r\n")], l.End, true, identify(name))
		if err != nil {
			return err
		}
		at = l.End
	}
	return f.checkWhole()
}

// add adds a field whose line ends at end. verbatim says that the line reads "Name: value\r\n": one space is before the
// value, and no blank after it.
func (f *RequestFields) add(name, value []byte, end int, verbatim bool, id nameID) error {
	if len(f.fields) == maxFields {
		return &Error{Rule: RuleTooManyFields, Limit: maxFields}
	}
	// The Field is written in place, because copying a Field costs as much as scanning it.
	if len(f.fields) < cap(f.fields) {
		f.fields = f.fields[:len(f.fields)+1]
	} else {
		f.fields = append(f.fields, Field{})
	}
	field := &f.fields[len(f.fields)-1]
	field.Name, field.Value, field.end, field.verbatim = name, value, end, verbatim
	field.withheld = false
	field.id = id
	if len(name) == len(f.TimeoutName) && syntax.EqualFold(name, f.TimeoutName) {
		f.timeouts++
		if f.timeouts == 1 {
			f.timeout = value
		}
	}
	if len(name) == len(f.IDName) {
		f.recordID(field)
	}
	switch {
	case id == unknownName:
	case bytes.IndexByte(name, '_') >= 0:
		if id > nameGuarded {
			field.id = nameLookAlike
		}
	default:
		return f.recordKnown(field, id)
	}
	return nil
}

// recordKnown checks and records the values of fields that the proxy itself uses.
func (f *RequestFields) recordKnown(field *Field, id nameID) error {
	name, value := field.Name, field.Value
	switch id {
	case nameHost:
		f.hosts++
		if f.hosts > 1 {
			return refuse(RuleRepeated, name)
		}
		f.host = value
		if len(value) > 0 { // an empty Host says that the target has no authority: RFC 9110, section 7.2
			host, _, ok := parseAuthority(value, nil)
			if !ok {
				return refuse(RuleHost, name)
			}
			f.host = host
		}
	case nameContentLength:
		if f.contentLength >= 0 {
			return refuse(RuleRepeated, name)
		}
		f.contentLength = parseLength(value)
		if f.contentLength < 0 {
			return refuse(RuleLength, name)
		}
	case nameTransferEncoding:
		if f.chunked {
			return refuse(RuleRepeated, name)
		}
		if f.HTTP10 || !syntax.EqualFold(value, "chunked") {
			return refuse(RuleEncoding, name)
		}
		f.chunked = true
	case nameHopByHop:
		f.takesTrailers = f.takesTrailers || f.HTTP2 && sameName(name, "te") && string(value) == "trailers"
	case nameForwardedFor:
		f.hasForwardedFor = true
	case nameDeviceIP, nameDeviceUserAgent:
		f.hasDeviceFields = true
	case nameConnection:
		if !f.options.add(value) {
			return &Error{Rule: RuleTooManyOptions, Field: string(name), Limit: maxOptions}
		}
	case nameSSP:
		f.ssps++
		if f.ssps == 1 {
			f.ssp = value
		}
	case nameContentType:
		if f.contentType == nil {
			f.contentType = value
		}
	case nameContentEncoding:
		if f.contentEncoding == nil {
			f.contentEncoding = value
		}
	case nameGRPCTimeout:
		f.grpcTimeouts++
		if f.grpcTimeouts == 1 {
			f.grpcTimeout = value
		}
	case nameVia:
		f.vias++
	case nameUserAgent:
		if f.userAgent == nil {
			f.userAgent = value
		}
	}
	return nil
}

// recordID records the value of a field that is called IDName. Neither such a field, nor a field that only looks like
// it, is forwarded.
func (f *RequestFields) recordID(field *Field) {
	if !sameName(field.Name, f.IDName) {
		return
	}
	field.id = nameLookAlike
	if syntax.EqualFold(field.Name, f.IDName) {
		f.clientIDs++
		if f.clientIDs == 1 {
			f.clientID = field.Value
		}
	}
}

// checkWhole makes the checks that need the whole block.
func (f *RequestFields) checkWhole() error {
	if f.hosts == 0 && !f.HTTP10 {
		return refuse(RuleHostMissing, nil)
	}
	if f.chunked && f.contentLength >= 0 {
		return refuse(RuleBothFramings, nil)
	}
	if f.options.n > 0 {
		for i := range f.fields {
			f.fields[i].withheld = f.options.has(f.fields[i].Name)
		}
	}
	if f.grpcTimeouts > 0 {
		f.classifyGRPCTimeout()
	}
	return nil
}

// classifyGRPCTimeout withholds the fields Grpc-Timeout if the content type is that of gRPC, and otherwise makes them
// ordinary fields.
func (f *RequestFields) classifyGRPCTimeout() {
	const grpc = "application/grpc" // or application/grpc+proto, application/grpc-web
	if len(f.contentType) < len(grpc) || !syntax.EqualFold(f.contentType[:len(grpc)], grpc) {
		f.grpcTimeout, f.grpcTimeouts = nil, 0
		return
	}
	for i := range f.fields {
		f.fields[i].withheld = f.fields[i].withheld || syntax.EqualFold(f.fields[i].Name, "grpc-timeout")
	}
}

// valueError returns the error about the byte of raw at i. That byte should be the CR of the CRLF
// that ends name's line.
func valueError(raw []byte, i int, name []byte) error {
	switch {
	case i >= len(raw):
		return refuse(RuleUnterminated, name)
	case raw[i] == '\n':
		return refuse(RuleBareLF, name)
	case raw[i] == '\r' && i+1 == len(raw):
		return refuse(RuleUnterminated, name)
	case raw[i] == '\r':
		return refuse(RuleBareCR, name)
	}
	return refuse(RuleValue, name)
}

// emptyNameError returns the error about a line whose first byte is not allowed in a name. line is
// not empty.
func emptyNameError(line []byte) error {
	switch line[0] {
	case '\r':
		if len(line) > 1 && line[1] != '\n' {
			return refuse(RuleBareCR, nil)
		}
		return refuse(RuleUnterminated, nil)
	case '\n':
		return refuse(RuleBareLF, nil)
	case ' ', '\t':
		return refuse(RuleFold, nil)
	case ':':
		return refuse(RuleEmptyName, nil)
	}
	return nameError(line, 0)
}

// nameError returns the error about a line whose name is followed by line[i], which is not a colon.
func nameError(line []byte, i int) error {
	if i == len(line) {
		return refuse(RuleUnterminated, nil)
	}
	shown := line
	if end := bytes.IndexAny(line, ":\r\n"); end >= 0 {
		shown = line[:end]
	}
	switch line[i] {
	case ' ', '\t':
		return refuse(RuleNameBlank, shown)
	case '\r', '\n':
		return refuse(RuleNoColon, shown)
	}
	return refuse(RuleName, shown)
}
