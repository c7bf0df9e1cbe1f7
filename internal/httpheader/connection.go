package httpheader

// maxOptions is how many fields the Connection fields of one message may name, beyond those that are
// hop-by-hop anyway. Each is compared with every field, so it bounds the work that a message can ask for.
const maxOptions = 16

// connectionOptions is what the Connection fields of a message name: fields that are for us alone. RFC 9110,
// section 7.6.1.
type connectionOptions struct {
	names [maxOptions][]byte
	n     int
}

// add takes in the value of one Connection field. It returns false if there are more than maxOptions names.
func (c *connectionOptions) add(value []byte) bool {
	if isCommonOption(value) {
		return true
	}
	for option := range elements(value) {
		if isCommonOption(option) || requestKinds[identify(option)] == never {
			continue
		}
		if c.n == maxOptions {
			return false
		}
		c.names[c.n] = option
		c.n++
	}
	return true
}

// isCommonOption reports whether option names no field. `keep-alive` does, but that never crosses anyway.
func isCommonOption(option []byte) bool {
	return EqualFold(option, "keep-alive") || EqualFold(option, "close")
}

// has reports whether a Connection field names name.
func (c *connectionOptions) has(name []byte) bool {
	for _, option := range c.names[:c.n] {
		if sameName(name, option) {
			return true
		}
	}
	return false
}
