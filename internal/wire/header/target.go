package header

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// SetTarget sets Path and Query from a request target in origin-form or absolute-form: RFC 9112, section 3.2. The
// host of an absolute-form replaces Host. SetTarget returns the rule that target violates, or "". It must be called
// after Scan.
func (f *RequestFields) SetTarget(target []byte) (violation string) {
	if !syntax.IsVisible(target) || bytes.IndexByte(target, '#') >= 0 {
		return "the request target has a byte that must be percent-encoded"
	}
	if len(target) > 0 && target[0] != '/' {
		i := bytes.Index(target, []byte("://"))
		if i < 0 || !syntax.IsHTTP(target[:i]) {
			return "the request target is neither a path nor an http URL"
		}
		target = target[i+len("://"):]
		end := bytes.IndexAny(target, "/?")
		if end < 0 {
			end = len(target)
		}
		host, _, ok := parseAuthority(target[:end], nil)
		if !ok {
			return "the request target is a URL without a valid host"
		}
		f.host, target = host, target[end:]
		if len(target) == 0 || target[0] == '?' {
			f.Path, f.Query = []byte("/"), bytes.TrimPrefix(target, []byte("?"))
			return ""
		}
	}
	f.Path, f.Query, _ = bytes.Cut(target, []byte{'?'})
	return ""
}
