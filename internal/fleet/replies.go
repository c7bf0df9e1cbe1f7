package fleet

import (
	"errors"
	"net"
)

// replies are what Redis sends, bounded: the client would allocate whatever size
// a reply announces, and who answers at the address might not be Redis.
type replies struct {
	net.Conn
	left   int  // bytes that may still come in this exchange
	inLine bool // not at the beginning of a line
	kind   byte // first byte of the line: '$' and '*' announce a size
	digits int  // of that size
}

const (
	maxReplies = 1 << 20 // bytes an exchange: hundreds of SSPs take a tenth
	maxDigits  = 4       // of a size
)

var errReplies = errors.New("who answers is no Redis: replies are larger than any to our calls")

// reset begins an exchange.
func (r *replies) reset() { r.left = maxReplies }

// Read implements net.Conn.
func (r *replies) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if r.left -= n; r.left < 0 {
		return 0, errReplies
	}
	for _, c := range b[:n] {
		switch {
		case c == '\n':
			r.inLine = false
		case !r.inLine:
			r.inLine, r.kind, r.digits = true, c, 0
		case (r.kind == '$' || r.kind == '*') && c != '\r':
			if r.digits++; r.digits > maxDigits {
				return 0, errReplies
			}
		}
	}
	return n, err
}
