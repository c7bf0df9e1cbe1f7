package header

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// viaPrefix begins the name of every adbuffer in a Via field. The process's id follows.
const viaPrefix = "adbuffer-"

// ViaName returns the name in Via, a token, of the process with this id.
func ViaName(id string) string { return viaPrefix + id }

// Adbuffers returns how many adbuffers the Via fields name, and whether self is one of them. RFC
// 9110, section 7.6.3.
//
// It also searches for names in comments. Otherwise a comment that a client leaves open could hide
// the names of the proxies behind it, and so a loop.
func (f *RequestFields) Adbuffers(self string) (n int, itself bool) {
	if f.vias == 0 {
		return 0, false
	}
	for i := range f.fields {
		if len(f.fields[i].Name) != len("via") || !syntax.EqualFold(f.fields[i].Name, "via") {
			continue
		}
		for v := f.fields[i].Value; ; {
			at := bytes.Index(v, []byte(viaPrefix))
			if at < 0 {
				break
			}
			end := at + len(viaPrefix)
			for end < len(v) && syntax.IsTokenByte(v[end]) {
				end++
			}
			// A longer name that only ends in adbuffer-… belongs to another proxy.
			if at == 0 || !syntax.IsTokenByte(v[at-1]) {
				n++
				itself = itself || string(v[at:end]) == self
			}
			v = v[end:]
		}
	}
	return n, itself
}

// viaLines are the lines that a policy adds to requests of each HTTP version; empty for none.
type viaLines [3][]byte

// The rows of viaLines.
const (
	http10 = iota
	http11
	http2
)

func newViaLines(name string) (lines viaLines) {
	if name == "" {
		return lines
	}
	for i, version := range []string{http10: "1.0", http11: "1.1", http2: "2.0"} {
		lines[i] = syntax.AppendField(nil, []byte("Via"), []byte(version+" "+name))
	}
	return lines
}

// version returns the row of viaLines for a request.
func (f *RequestFields) version() int {
	switch {
	case f.HTTP10:
		return http10
	case f.HTTP2:
		return http2
	}
	return http11
}
