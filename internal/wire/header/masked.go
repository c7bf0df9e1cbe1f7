package header

import (
	"bytes"
	"slices"
	"strings"
)

// NamesSecret reports whether a header field or query parameter of this name is likely to hold a secret.
// In doubt it returns true.
func NamesSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "cookie", "key", "token", "secret", "pass", "sig", "credential", "session"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// AppendMasked appends the fields of f to dst as lines, with an empty line at the end. Each byte of the values of
// guarded fields, of identity fields, and of fields that NamesSecret names, becomes an x. The fields that frame the body
// are left out, as is the Content-Encoding of a body that has been decoded.
func (f *RequestFields) AppendMasked(dst []byte) []byte {
	for i := range f.fields {
		field := &f.fields[i]
		switch {
		case field.id == nameContentLength, field.id == nameTransferEncoding, f.decoded && field.id == nameContentEncoding:
			continue
		}
		dst = append(append(dst, field.Name...), ": "...)
		if field.id == nameGuarded || field.id.isIdentity() || NamesSecret(string(field.Name)) {
			dst = AppendMask(dst, field.Value)
		} else {
			dst = append(dst, field.Value...)
		}
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// AppendMask appends an x for each byte of value.
func AppendMask(dst, value []byte) []byte {
	return append(dst, bytes.Repeat([]byte{'x'}, len(value))...)
}

// AppendMaskedTarget appends a request target. Each byte of the values of parameters that NamesSecret names becomes an x.
func AppendMaskedTarget(dst, target []byte) []byte {
	path, query, ok := bytes.Cut(target, []byte{'?'})
	dst = append(dst, path...)
	if !ok {
		return dst
	}
	sep := byte('?')
	for param := range bytes.SplitSeq(query, []byte{'&'}) {
		dst = append(dst, sep)
		sep = '&'
		name, value, hasValue := bytes.Cut(param, []byte{'='})
		if !hasValue || !NamesSecret(string(name)) {
			dst = append(dst, param...)
			continue
		}
		dst = AppendMask(append(append(dst, name...), '='), value)
	}
	return dst
}
