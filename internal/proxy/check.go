package proxy

import (
	"bytes"

	"adbuffer/internal/httpheader"
	"adbuffer/internal/syntax"
	"adbuffer/internal/upstream"
)

// refusal is the reason and the response of a refused request.
type refusal struct {
	outcome upstream.Outcome
	status  int // 0 = the outcome's own
	detail  string
	allow   string // with MethodNotAllowed
	close   bool   // the framing is in doubt: the connection ends with this response
	reset   bool   // the stream is reset: there is no response
}

func (f *refusal) statusCode() int {
	if f.status != 0 {
		return f.status
	}
	return statuses[f.outcome]
}

// check checks the message head of an HTTP/1 request. It first checks that the head is well-formed:
// in a malformed head, the start of the next request is unknown.
func (r *request) check() *refusal {
	h := &r.conn.head
	if h.refusal != nil {
		return h.refusal
	}
	r.fields.HTTP10, r.fields.HTTP2 = h.http10, false
	if err := r.fields.Scan(h.fields); err != nil {
		return headRefusal(err)
	}
	r.lookup.Host, r.lookup.Fields = r.fields.Host(), &r.fields
	hasBody := r.fields.ContentLength() > 0 || r.fields.Chunked()
	if hasBody {
		r.conn.body.open(r.fields.ContentLength(), r.configVersion)
		r.source, r.conn.uploading = &r.conn.body, &r.upload
		expect, _ := r.fields.Lookup("Expect")
		r.expects = !h.http10 && syntax.EqualFold(expect, "100-continue")
	}
	if f := r.checkLine(h.method, h.target); f != nil {
		return f
	}
	if hasBody && r.ssp.Method != upstream.POST {
		return bodyNotAllowed()
	}
	return nil
}

// bodyNotAllowed refuses a GET or HEAD with a body. An SSP that ignores such a body
// would take it for the next request on a connection that many clients share.
func bodyNotAllowed() *refusal {
	return &refusal{outcome: upstream.BadRequest, detail: "a GET or HEAD must have no body", close: true}
}

// checkLine checks first the target and then the method.
func (r *request) checkLine(method, target []byte) *refusal {
	r.method, r.rawTarget = method, target
	if string(method) != "OPTIONS" || string(target) != "*" {
		if f := r.splitTarget(target); f != nil {
			return f
		}
	}
	return r.setMethod(string(method))
}

func (r *request) setMethod(method string) *refusal {
	switch method {
	case "GET":
		r.ssp.Method = upstream.GET
	case "HEAD":
		r.ssp.Method = upstream.HEAD
	case "POST":
		r.ssp.Method = upstream.POST
	case "CONNECT":
		return &refusal{outcome: upstream.BadRequest, detail: "CONNECT is not served", close: true}
	default:
		return &refusal{outcome: upstream.MethodNotAllowed, allow: "GET, HEAD, POST", detail: "GET, HEAD and POST are served"}
	}
	return nil
}

// splitTarget parses a target in origin-form or absolute-form. RFC 9112, section 3.2.
func (r *request) splitTarget(target []byte) *refusal {
	for _, c := range target {
		if c <= ' ' || c == 0x7f || c == '#' {
			return &refusal{outcome: upstream.BadRequest, detail: "the request target has a byte that must be percent-encoded", close: true}
		}
	}
	if len(target) > 0 && target[0] != '/' {
		i := bytes.Index(target, []byte("://"))
		if i < 0 || !syntax.IsHTTP(target[:i]) {
			return &refusal{outcome: upstream.BadRequest, detail: "the request target is neither a path nor an http URL", close: true}
		}
		target = target[i+len("://"):]
		end := bytes.IndexAny(target, "/?")
		if end < 0 {
			end = len(target)
		}
		if end == 0 || !httpheader.IsHost(target[:end]) {
			return &refusal{outcome: upstream.BadRequest, detail: "the request target is a URL without a valid host", close: true}
		}
		// The host is used only for matching.
		r.lookup.Host = target[:end]
		if target = target[end:]; len(target) == 0 || target[0] == '?' {
			r.lookup.Path = []byte("/")
			r.lookup.Query = bytes.TrimPrefix(target, []byte("?"))
			return nil
		}
	}
	path, query, _ := bytes.Cut(target, []byte{'?'})
	r.lookup.Path, r.lookup.Query = path, query
	return nil
}
