package header

import "adbuffer/internal/wire/syntax"

// maxOptions is the maximum number of names in the Connection fields of one message. Names of fields that are never
// forwarded, and the option close, are not counted. The limit bounds the work per byte: with it, a byte of the worst
// header costs about five times as much as a byte of a common one. TestTheCostOfAHostileHeadIsBounded allows six times.
const maxOptions = 16

// connectionOptions are the names in the Connection fields of a message: fields that must not be
// forwarded. RFC 9110, section 7.6.1.
type connectionOptions struct {
	names [maxOptions][]byte // names[:n] are the names that count towards maxOptions
	n     int

	close, keepAlive bool // a Connection field has this option
}

// reset removes all names and options.
func (c *connectionOptions) reset() {
	clear(c.names[:c.n])
	c.n, c.close, c.keepAlive = 0, false, false
}

// add adds the options in the value of one Connection field. It returns false if there are more than maxOptions
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
		c.names[c.n] = option
		c.n++
	}
	return true
}

// isCommonOption reports whether an option is "close" or "keep-alive". Such an option need not be kept in names: no
// field is called Close, and Keep-Alive never crosses.
func isCommonOption(option []byte) bool {
	return syntax.EqualFold(option, "keep-alive") || syntax.EqualFold(option, "close")
}

// addCommon records an option that is "close" or "keep-alive", and returns false for any other option.
func (c *connectionOptions) addCommon(option []byte) bool {
	switch {
	case !isCommonOption(option):
		return false
	case len(option) == len("close"):
		c.close = true
	default:
		c.keepAlive = true
	}
	return true
}

// has reports whether the options include the field called name, in any case and with '_' read as '-'.
func (c *connectionOptions) has(name []byte) bool {
	for _, option := range c.names[:c.n] {
		if sameName(name, option) {
			return true
		}
	}
	return false
}
