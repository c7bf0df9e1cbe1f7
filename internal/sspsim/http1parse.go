package sspsim

import (
	"bytes"
	"strconv"

	"golang.org/x/net/http/httpguts"
)

// parse splits q.head into its parts. It is as strict as RFC 9112 allows. It refuses a request in
// which a lenient parser could see other fields or another framing.
func (q *http1Request) parse() error {
	lineEnd := bytes.IndexByte(q.head, '\n')
	if err := q.parseRequestLine(q.head[:lineEnd-1]); err != nil {
		return err
	}
	var err error
	q.fields, err = parseFields(q.fields, q.head[lineEnd+1:])
	if err != nil {
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
	if !isToken(q.method) {
		return bad("method %.40q is not a token", q.method)
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
		name, value, ok := bytes.Cut(line, []byte{':'})
		if !ok || len(name) == 0 {
			return nil, bad("header line %.80q has no name", line)
		}
		if !isToken(name) {
			return nil, bad("field name %.40q is not a token", name)
		}
		value = bytes.Trim(value, " \t")
		if !isValue(value) {
			return nil, bad("value of %s holds a control byte", name)
		}
		fields = append(fields, span{name, value})
	}
}

// parseFraming reads the fields that define the end of the request and the persistence of the
// connection. RFC 9112, sections 6.3 and 9.3.
func (q *http1Request) parseFraming() error {
	hosts, keepAlive := 0, false
	for i := range q.fields {
		f := &q.fields[i]
		switch {
		case foldEqual(f.name, "host"):
			hosts++
		case foldEqual(f.name, "expect"):
			q.wait100 = q.wait100 || foldEqual(f.value, "100-continue")
		case foldEqual(f.name, "connection"):
			q.close = q.close || hasToken(f.value, "close")
			keepAlive = keepAlive || hasToken(f.value, "keep-alive")
		case foldEqual(f.name, "x-request-id"):
			if q.requestID == nil {
				q.requestID = f.value
			}
		case foldEqual(f.name, "content-length"):
			if q.length >= 0 {
				return bad("two Content-Length fields")
			}
			var ok bool
			q.length, ok = parseLength(f.value)
			if !ok {
				return bad("Content-Length %.40q is not a number of at most 15 digits", f.value)
			}
		case foldEqual(f.name, "transfer-encoding"):
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
	if len(v) > 15 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(v), 10, 63)
	return int64(n), err == nil
}

// foldEqual compares without case; lower is ASCII. Equal lengths exclude the letters beyond ASCII
// that fold to ASCII.
func foldEqual(b []byte, lower string) bool {
	return len(b) == len(lower) && bytes.EqualFold(b, []byte(lower))
}

// hasToken reports whether the comma-separated list contains the token.
func hasToken(list []byte, token string) bool {
	for item := range bytes.SplitSeq(list, []byte{','}) {
		if foldEqual(bytes.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

// isToken reports whether name may be a method or a field name. RFC 9110, section 5.6.2.
func isToken[T ~string | ~[]byte](name T) bool {
	for i := range len(name) {
		if !httpguts.IsTokenRune(rune(name[i])) {
			return false
		}
	}
	return len(name) > 0
}

// isValue reports whether v is a valid field value: no control bytes except tab.
func isValue[T ~string | ~[]byte](v T) bool {
	for i := range len(v) {
		if v[i] < ' ' && v[i] != '\t' || v[i] == 0x7f {
			return false
		}
	}
	return true
}
