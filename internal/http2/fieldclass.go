package http2

import (
	"encoding/binary"

	"golang.org/x/net/http2/hpack"
)

// class is what a field of an answer is to us. Finding it checks the field.
type class uint8

const (
	ordinary           class = iota
	status                   // :status
	contentLength            // content-length
	pseudo                   // any other name with a colon in front: not for answers
	connectionSpecific       // RFC 9113, section 8.2.2
	badName                  // empty, upper case, or no token: section 8.2.1
	badValue                 // control characters, or blanks around it: section 8.2.1
)

// malformed says what is wrong with a field of each class, in an answer.
var malformed = [...]string{
	pseudo:             "a pseudo-field that answers do not have",
	connectionSpecific: "a connection-specific field",
	badName:            "a malformed field name",
	badValue:           "a malformed field value",
}

// classify checks a field.
func classify(name, value []byte) class { return classifyName(name).with(value) }

// with returns the class of a field whose name is of class c.
func (c class) with(value []byte) class {
	if !validValue(value) {
		return badValue
	}
	return c
}

func classifyName(name []byte) class {
	if len(name) == 0 {
		return badName
	}
	if name[0] == ':' {
		if string(name) == ":status" {
			return status
		}
		return pseudo
	}
	for _, c := range name {
		if lowerToken[c] != c || c == 0 {
			return badName
		}
	}
	if string(name) == "content-length" {
		return contentLength
	}
	if isConnectionSpecific(name) {
		return connectionSpecific
	}
	return ordinary
}

// isConnectionSpecific reports whether a field of this lower-case name speaks
// of the HTTP/1 connection: RFC 9113, section 8.2.2.
func isConnectionSpecific(name []byte) bool {
	switch len(name) {
	case len("upgrade"):
		return string(name) == "upgrade"
	case len("connection"):
		return string(name) == "connection" || string(name) == "keep-alive"
	case len("proxy-connection"):
		return string(name) == "proxy-connection"
	case len("transfer-encoding"):
		return string(name) == "transfer-encoding"
	}
	return false
}

// validValue reports whether v can be carried on in a line of HTTP/1: no
// control character but HTAB, and no blanks around it.
func validValue(v []byte) bool {
	if len(v) == 0 {
		return true
	}
	if isBlank(v[0]) || isBlank(v[len(v)-1]) {
		return false
	}
	if isText(v, ' ') {
		return true
	}
	for _, c := range v { // a tab inside is why we may get here
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// isText reports whether v has no byte below lowest, which is at most 128, and
// no DEL. Eight bytes at a time: a target of 300 bytes takes 25 ns instead of
// 120.
func isText(v []byte, lowest byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(v) >= 8; v = v[8:] {
		x := binary.LittleEndian.Uint64(v)
		del := x ^ ones*0x7f
		if (x-ones*uint64(lowest))&^x&tops != 0 || (del-ones)&^del&tops != 0 {
			return false
		}
	}
	for _, c := range v {
		if c < lowest || c == 0x7f {
			return false
		}
	}
	return true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// lowerToken maps the bytes of a token (RFC 9110, section 5.6.2) to lower
// case, and all others to 0.
var lowerToken = func() (t [256]byte) {
	for c := byte('0'); c <= '9'; c++ {
		t[c] = c
	}
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = c, c
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		t[c] = c
	}
	return t
}()

// staticEntry is an entry of HPACK's static table.
type staticEntry struct {
	name, value      []byte
	nameClass, class class // in an answer: of the name, and of both
}

// staticTable is RFC 7541, appendix A, from 1. hpack does not export its own,
// but decodes each index.
var staticTable = func() (t [62]staticEntry) {
	d := hpack.NewDecoder(0, nil)
	for i := 1; i < len(t); i++ {
		f, err := d.DecodeFull([]byte{0x80 | byte(i)})
		if err != nil {
			panic("BUG: hpack lacks a static entry: " + err.Error())
		}
		name, value := []byte(f[0].Name), []byte(f[0].Value)
		t[i] = staticEntry{name, value, classifyName(name), classify(name, value)}
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
