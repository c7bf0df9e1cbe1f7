package proxy

import "adbuffer/internal/upstream"

// checkStream is check for a request over HTTP/2. Its fields have HTTP/1.1's form, and are checked
// and classified like the fields of a request over HTTP/1. Their number must be count. last says
// that no body follows.
func (r *request) checkStream(header, method, target []byte, count int, last bool) *refusal {
	r.fields.HTTP10, r.fields.HTTP2 = false, true
	if err := r.fields.Scan(header); err != nil {
		return headRefusal(err)
	}
	if len(r.fields.Fields()) != count || r.fields.Chunked() {
		return malformed("the header fields do not read as they were sent")
	}
	r.lookup.Host, r.lookup.Fields = r.fields.Host(), &r.fields
	if string(method) != "CONNECT" && string(target) != "*" && (len(target) == 0 || target[0] != '/') {
		return malformed("the path does not begin with a slash")
	}
	if f := r.checkLine(method, target); f != nil {
		return f
	}
	// A body without a stated length may be empty, which is not known yet.
	if !last && r.ssp.Method != upstream.POST && r.fields.ContentLength() > 0 {
		return bodyNotAllowed()
	}
	return nil
}
