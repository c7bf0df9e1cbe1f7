package httpheader

import (
	"hash/maphash"

	"adbuffer/internal/syntax"
)

// maxOptions is how many fields the Connection fields of one message may name, in addition to
// fields that are always hop-by-hop. It bounds the work that a message can cause.
const maxOptions = 16

// connectionOptions are the names in the Connection fields of a message: fields that must not be
// forwarded. RFC 9110, section 7.6.1.
type connectionOptions struct {
	names   [maxOptions][]byte
	hashes  [maxOptions]uint32
	lengths uint64 // bit n: a name of n bytes is among them; bit 63: one of 63 or more
	n       int

	close, keepAlive bool // these options are among them
}

// reset forgets all names.
func (c *connectionOptions) reset() {
	clear(c.names[:c.n])
	clear(c.hashes[:c.n])
	c.lengths, c.n, c.close, c.keepAlive = 0, 0, false, false
}

// add adds the value of one Connection field. It returns false if there are more than maxOptions
// names.
func (c *connectionOptions) add(value []byte) bool {
	if c.addCommon(value) {
		return true
	}
	for option := range syntax.Elements(value) {
		if c.addCommon(option) || identify(option).neverForwarded() {
			continue
		}
		if c.n == maxOptions {
			return false
		}
		c.names[c.n], c.hashes[c.n] = option, hashName(option)
		c.lengths |= 1 << min(len(option), 63)
		c.n++
	}
	return true
}

// addCommon handles `close` and `keep-alive`, and returns false for any other option. No field is
// called `close`, and Keep-Alive never crosses.
func (c *connectionOptions) addCommon(option []byte) bool {
	switch {
	case syntax.EqualFold(option, "keep-alive"):
		c.keepAlive = true
	case syntax.EqualFold(option, "close"):
		c.close = true
	default:
		return false
	}
	return true
}

// has reports whether a Connection field names name.
func (c *connectionOptions) has(name []byte) bool {
	return c.lengths>>min(len(name), 63)&1 == 1 && c.find(name)
}

// find does the same as has, for a name whose length is among the options. It reads the bytes of
// the name once, for any number of options with this length. A comparison with each would cost
// sixteen times as much for names that differ only in their last byte.
func (c *connectionOptions) find(name []byte) bool {
	hash := hashName(name)
	for i, option := range c.names[:c.n] {
		if c.hashes[i] == hash && sameName(name, option) {
			return true
		}
	}
	return false
}

var nameSeed = maphash.MakeSeed()

// hashName is equal for names that sameName treats as equal. No client can find two other names
// with equal hashes.
func hashName(name []byte) uint32 {
	var h maphash.Hash
	h.SetSeed(nameSeed)
	var part [64]byte
	for len(name) > 0 {
		n := min(len(name), len(part))
		for i, c := range name[:n] {
			part[i] = folded[c]
		}
		h.Write(part[:n])
		name = name[n:]
	}
	return uint32(h.Sum64())
}
