package sspsim

import "bytes"

// ids are the ids in a request, as raw bytes, and its body. They point into the request.
type ids struct {
	body      []byte
	requestID []byte // X-Request-Id
	cb        []byte // query parameter cb, not decoded
	bid       []byte // top-level "id" of the OpenRTB body, in JSON's escapes
}

var noID = []byte("0")

// best returns the id that the response's body carries.
func (q *ids) best() []byte {
	switch {
	case len(q.bid) > 0:
		return q.bid
	case len(q.cb) > 0:
		return q.cb
	case len(q.requestID) > 0:
		return q.requestID
	}
	return noID
}

// queryValue returns the raw value of the first parameter name in target's query, or nil if there
// is none.
func queryValue(target []byte, name string) []byte {
	_, query, _ := bytes.Cut(target, []byte{'?'})
	for pair := range bytes.SplitSeq(query, []byte{'&'}) {
		if key, value, ok := bytes.Cut(pair, []byte{'='}); ok && string(key) == name {
			return value
		}
	}
	return nil
}

// openRTBID returns the content of the first top-level string member "id" of the JSON object in
// body, with its escapes. It returns nil without such a member, or if its content is not allowed in
// a header field.
func openRTBID(body []byte) []byte {
	depth, atKey := 0, false
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '{':
			depth++
			atKey = depth == 1
		case '[':
			depth++
			if depth == 1 {
				return nil // not an object
			}
		case '}', ']':
			depth--
		case ',':
			atKey = depth == 1
		case '"':
			end := stringEnd(body, i+1)
			if end < 0 || depth == 0 {
				return nil
			}
			key := body[i+1 : end]
			i = end
			if !atKey {
				continue
			}
			atKey = false
			if string(key) != "id" {
				continue
			}
			if at := valueAt(body, end+1); at >= 0 && body[at] == '"' {
				if end := stringEnd(body, at+1); end >= 0 && isValue(body[at+1:end]) {
					return body[at+1 : end]
				}
			}
			return nil
		}
	}
	return nil
}

// stringEnd returns the index of the quote that ends the string that starts at i.
func stringEnd(b []byte, i int) int {
	for ; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// valueAt returns the index of the first byte of the value after the colon at or after i, or -1 if
// there is none.
func valueAt(b []byte, i int) int {
	colon := false
	for ; i < len(b); i++ {
		switch b[i] {
		case ' ', '\t', '\r', '\n':
		case ':':
			if colon {
				return -1
			}
			colon = true
		default:
			if !colon {
				return -1
			}
			return i
		}
	}
	return -1
}

const hexDigits = "0123456789abcdef"

// appendJSONText appends text as the content of a JSON string.
func appendJSONText(dst, text []byte) []byte {
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20 || c >= 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
