package sspsim

import "bytes"

// parse splits q.head into its parts. It is as strict as RFC 9112 allows. It refuses a request in
// which a lenient parser could see other fields or another framing.
func (q *http1Request) parse() error {
	lineEnd := bytes.IndexByte(q.head, '\n')
	if err := q.parseRequestLine(q.head[:lineEnd-1]); err != nil {
		return err
	}
	var err error
	if q.fields, err = parseFields(q.fields, q.head[lineEnd+1:]); err != nil {
		return err
	}
	return q.parseFraming()
}

func (q *http1Request) parseRequestLine(line []byte) error {
	method := bytes.IndexByte(line, ' ')
	version := bytes.LastIndexByte(line, ' ')
	if method <= 0 || version <= method+1 {
		return bad("request line %.80q is not a method, a target and a version", line)
	}
	q.method, q.target = line[:method], line[method+1:version]
	for _, c := range q.method {
		if !tokenByte[c] {
			return bad("method %.40q is not a token", q.method)
		}
	}
	for _, c := range q.target {
		if c <= ' ' || c == 0x7f {
			return bad("target %.80q holds a space or a control byte", q.target)
		}
	}
	switch string(line[version+1:]) {
	case "HTTP/1.1":
	case "HTTP/1.0":
		q.http10 = true
	default:
		return &badRequest{505, "version is not HTTP/1.0 or HTTP/1.1"}
	}
	return nil
}

// parseFields appends the fields of block, whose lines end in CRLF, including the empty last line.
func parseFields(fields []span, block []byte) ([]span, error) {
	for {
		end := bytes.IndexByte(block, '\n')
		line := block[:end-1]
		if len(line) == 0 {
			return fields, nil
		}
		block = block[end+1:]
		if line[0] == ' ' || line[0] == '\t' {
			return nil, bad("header line %.80q continues the previous one (obs-fold)", line)
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return nil, bad("header line %.80q has no name", line)
		}
		for _, c := range line[:colon] {
			if !tokenByte[c] {
				return nil, bad("field name %.40q is not a token", line[:colon])
			}
		}
		value := bytes.Trim(line[colon+1:], " \t")
		if !validValueBytes(value) {
			return nil, bad("value of %s holds a control byte", line[:colon])
		}
		fields = append(fields, span{line[:colon], value})
	}
}

// parseFraming reads the fields that define the end of the request and the persistence of the
// connection. RFC 9112, sections 6.3 and 9.3.
func (q *http1Request) parseFraming() error {
	hosts, keepAlive := 0, false
	for i := range q.fields {
		f := &q.fields[i]
		switch len(f.name) {
		case 4:
			if foldEqual(f.name, "host") {
				hosts++
			}
		case 6:
			q.wait100 = q.wait100 || foldEqual(f.name, "expect") && foldEqual(f.value, "100-continue")
		case 10:
			if foldEqual(f.name, "connection") {
				q.close = q.close || hasToken(f.value, "close")
				keepAlive = keepAlive || hasToken(f.value, "keep-alive")
			}
		case 12:
			if q.requestID == nil && foldEqual(f.name, "x-request-id") {
				q.requestID = f.value
			}
		case 14:
			if !foldEqual(f.name, "content-length") {
				continue
			}
			if q.length >= 0 {
				return bad("two Content-Length fields")
			}
			var ok bool
			if q.length, ok = parseLength(f.value); !ok {
				return bad("Content-Length %.40q is not a number of at most 15 digits", f.value)
			}
		case 17:
			if !foldEqual(f.name, "transfer-encoding") {
				continue
			}
			if q.chunked || !foldEqual(f.value, "chunked") {
				return &badRequest{501, "Transfer-Encoding is not chunked, once"}
			}
			q.chunked = true
		}
	}
	switch {
	case hosts > 1 || hosts == 0 && !q.http10:
		return bad("%d Host fields", hosts)
	case q.chunked && q.length >= 0:
		return bad("Content-Length beside Transfer-Encoding")
	case q.chunked && q.http10:
		return bad("Transfer-Encoding in HTTP/1.0")
	}
	q.close = q.close || q.http10 && !keepAlive
	q.wait100 = q.wait100 && !q.http10
	return nil
}

func parseLength(v []byte) (int64, bool) {
	if len(v) == 0 || len(v) > 15 {
		return 0, false
	}
	var n int64
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// foldEqual compares without case; lower is ASCII in lower case.
func foldEqual(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// hasToken reports whether the comma-separated list contains the token.
func hasToken(list []byte, token string) bool {
	for len(list) > 0 {
		item := list
		if comma := bytes.IndexByte(list, ','); comma >= 0 {
			item, list = list[:comma], list[comma+1:]
		} else {
			list = nil
		}
		if foldEqual(bytes.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

// tokenByte marks the bytes that a method or a field name may contain. RFC 9110, section 5.6.2.
var tokenByte = func() (t [256]bool) {
	for c := '0'; c <= 'z'; c++ {
		t[c] = c <= '9' || c >= 'a' || c >= 'A' && c <= 'Z' || c == '^' || c == '_' || c == '`'
	}
	for _, c := range "!#$%&'*+-.|~" {
		t[c] = true
	}
	return t
}()

// validName reports whether name is a valid field name.
func validName(name string) bool {
	for i := range len(name) {
		if !tokenByte[name[i]] {
			return false
		}
	}
	return name != ""
}

// validValue reports whether v is a valid field value: no control bytes except tab.
func validValue(v string) bool { return validValueBytes([]byte(v)) }

func validValueBytes(v []byte) bool {
	for _, c := range v {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
