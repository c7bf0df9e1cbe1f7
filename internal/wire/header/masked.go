package header

import (
	"bytes"
	"slices"
	"strings"
)

// NamesSecret reports whether a header field or query parameter of this name is likely to hold a secret.
// In doubt it returns true, but names such as keywords, author, design and passback hold none.
func NamesSecret(name string) bool {
	has := func(parts []string, name string, holds func(name, part string) bool) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return holds(name, part) })
	}
	if has(secretParts, strings.ToLower(name), strings.Contains) {
		return true
	}
	for word := range strings.FieldsFuncSeq(splitCase(name), func(r rune) bool { return r < 'a' || r > 'z' }) {
		if has(secretEnds, word, strings.HasSuffix) || slices.Contains(secretWords, word) {
			return true
		}
	}
	return false
}

var (
	// secretParts are parts of names that hold secrets wherever they stand.
	secretParts = []string{"authen", "authori", "cookie", "credential", "passw", "passphrase", "passcode", "secret", "session", "signature", "token"}
	// secretEnds are the ends of such words in names: apikey, oauth, userpass.
	secretEnds  = []string{"auth", "key", "keys", "pass"}
	secretWords = []string{"sig", "sign", "signed"}
)

// splitCase returns name in lower case, with a space before each upper-case letter that follows a lower-case one.
func splitCase(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			if i > 0 && 'a' <= name[i-1] && name[i-1] <= 'z' {
				b.WriteByte(' ')
			}
			c |= 0x20
		}
		b.WriteByte(c)
	}
	return b.String()
}

// AppendMasked appends the fields of f to dst as lines, with an empty line at the end. Each byte of the values of
// fields for which IsMasked holds becomes an x. The fields that frame the body are left out.
func (f *RequestFields) AppendMasked(dst []byte) []byte {
	for i := range f.fields {
		field := &f.fields[i]
		if field.id == nameContentLength || field.id == nameTransferEncoding {
			continue
		}
		dst = append(append(dst, field.Name...), ": "...)
		if isMasked(field.id, string(field.Name)) {
			dst = AppendMask(dst, field.Value)
		} else {
			dst = append(dst, field.Value...)
		}
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "\r\n"...)
}

// IsMasked reports whether AppendMasked masks the values of fields of this name: guarded fields, identity fields, and those
// that NamesSecret names.
func IsMasked(name string) bool { return isMasked(identify([]byte(name)), name) }

func isMasked(id nameID, name string) bool {
	return id == nameGuarded || id.isIdentity() || NamesSecret(name)
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
