package http2codec

import (
	"adbuffer/internal/wire/syntax"

	"golang.org/x/net/http2/hpack"
)

// class is the kind of a field: how a header block handles it, or why it is malformed.
type class uint8

const (
	ordinary      class = iota
	status              // :status
	ContentLength       // content-length; exported, with Classify, for tests of other packages
	method              // :method; the next three classes are the other pseudo-fields of requests
	scheme
	authority
	path
	pseudo             // any other name that begins with a colon
	connectionSpecific // RFC 9113, section 8.2.2
	badName            // empty, not a token, or with upper-case letters: section 8.2.1
	badValue           // control characters, or blanks around the value: section 8.2.1
)

// malformed says why a block with a field of each class is malformed. The classes from status to path are errors only in
// a block that does not allow them.
var malformed = [...]string{
	status:             "a pseudo-field that requests do not have",
	method:             "a pseudo-field that responses do not have",
	scheme:             "a pseudo-field that responses do not have",
	authority:          "a pseudo-field that responses do not have",
	path:               "a pseudo-field that responses do not have",
	pseudo:             "an unknown pseudo-field",
	connectionSpecific: "a connection-specific field",
	badName:            "a malformed field name",
	badValue:           "a malformed field value",
}

// Classify returns the class of a field.
func Classify(name, value []byte) class { return classifyName(name).with(value) }

// with returns the class of a field with this value, whose name is of class c.
func (c class) with(value []byte) class {
	if !syntax.IsTrimmedValue(value) {
		return badValue
	}
	return c
}

func classifyName(name []byte) class {
	if len(name) == 0 {
		return badName
	}
	if name[0] == ':' {
		switch string(name) {
		case ":status":
			return status
		case ":method":
			return method
		case ":scheme":
			return scheme
		case ":authority":
			return authority
		case ":path":
			return path
		}
		return pseudo
	}
	for _, c := range name {
		if syntax.Lower[c] != c || c == 0 { // Lower maps each byte that no token contains to 0, including the byte 0
			return badName
		}
	}
	if string(name) == "content-length" {
		return ContentLength
	}
	if syntax.IsConnectionSpecific(name) {
		return connectionSpecific
	}
	return ordinary
}

// staticEntry is an entry of HPACK's static table.
type staticEntry struct {
	name, value      []byte
	nameClass, class class // of the name, and of the whole field
}

// staticTable is the table of RFC 7541, appendix A, whose indexes begin with 1; element 0 is unused. Package hpack does not export its table,
// but its decoder returns each entry.
var staticTable = func() (t [62]staticEntry) {
	d := hpack.NewDecoder(0, nil)
	for i := 1; i < len(t); i++ {
		f, err := d.DecodeFull([]byte{0x80 | byte(i)})
		if err != nil {
			panic("BUG: hpack lacks a static entry: " + err.Error())
		}
		name, value := []byte(f[0].Name), []byte(f[0].Value)
		t[i] = staticEntry{name, value, classifyName(name), Classify(name, value)}
	}
	return t
}()

// staticName maps a name to its first index in the static table.
var staticName = func() map[string]uint8 {
	m := make(map[string]uint8)
	for i := len(staticTable) - 1; i > 0; i-- {
		m[string(staticTable[i].name)] = uint8(i)
	}
	return m
}()
