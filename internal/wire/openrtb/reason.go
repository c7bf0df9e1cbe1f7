package openrtb

import (
	"bytes"

	"adbuffer/internal/wire/syntax"
)

// Reason says why a body cannot be used for conditions and edits; the zero value Readable says that it can. The names of
// the reasons are the values of the metric label `reason`.
type Reason uint8

// The reasons.
const (
	Readable  Reason = iota
	Syntax           // not valid JSON (RFC 8259), or a byte order mark
	NotObject        // a JSON value that is not an object, or no body
	Depth            // nested deeper than MaxDepth
	Duplicate        // an object on a configured path has two members of one name
	Encoding         // the request has a Content-Encoding
	MediaType        // the request's Content-Type is protobuf
	WrongType        // a member that a Set changes, or a parent of it, has a value of the wrong type

	// Reasons is the number of reasons, for arrays indexed by Reason.
	Reasons
)

// MaxDepth is how many levels deep objects and arrays may nest. The root is level 1.
const MaxDepth = 64

var reasons = [Reasons]struct{ name, text string }{
	Readable:  {"", ""},
	Syntax:    {"syntax", "it is not valid JSON"},
	NotObject: {"not_object", "it is not a JSON object"},
	Depth:     {"depth", "it is nested more than 64 levels deep"},
	Duplicate: {"twice", "it has the same member twice, on a configured path"},
	Encoding:  {"encoding", "it is compressed"},
	MediaType: {"media_type", "its Content-Type is protobuf"},
	WrongType: {"wrong_type", "a member on the path of a set is not an object, or the member to append to is not an array"},
}

// String returns the name of the reason, empty for Readable.
func (r Reason) String() string { return reasons[r].name }

// Text returns the reason as a clause for people, in which "it" is the body.
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
