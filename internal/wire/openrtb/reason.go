package openrtb

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// Reason says why a body is unreadable. It is a closed set; its names are the values of the metric label
// `reason`. The zero value is Readable.
type Reason uint8

// The reasons.
const (
	Readable  Reason = iota
	Syntax           // not valid JSON (RFC 8259), or a byte order mark
	NotObject        // another JSON value, or no body
	Depth            // nested deeper than MaxDepth
	Twice            // an object has a member on a configured path twice
	Encoding         // has a Content-Encoding
	MediaType        // its Content-Type is protobuf

	// Reasons is the number of reasons, for arrays indexed by Reason.
	Reasons
)

// MaxDepth is how deep objects and arrays may nest. The root has depth 1.
const MaxDepth = 64

var reasons = [Reasons]struct{ name, text string }{
	Readable:  {"", ""},
	Syntax:    {"syntax", "it is not valid JSON"},
	NotObject: {"not_object", "it is no JSON object"},
	Depth:     {"depth", "it is nested deeper than 64"},
	Twice:     {"twice", "a member on a configured path is in it twice"},
	Encoding:  {"encoding", "it is compressed"},
	MediaType: {"media_type", "its Content-Type is protobuf"},
}

// String returns the name of the reason, empty for Readable.
func (r Reason) String() string { return reasons[r].name }

// Text is a clause for people, about "the body" or "it".
func (r Reason) Text() string { return reasons[r].text }

// IsProtobuf reports whether a Content-Type is application/protobuf, application/x-protobuf or another
// name of it. Any other type may be JSON: browsers send it as text/plain.
func IsProtobuf(contentType []byte) bool {
	contentType, _, _ = bytes.Cut(contentType, []byte{';'})
	const name = "protobuf"
	for i := 0; i+len(name) <= len(contentType); i++ {
		if syntax.EqualFold(contentType[i:i+len(name)], name) {
			return true
		}
	}
	return false
}
