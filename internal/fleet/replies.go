package fleet

import (
	"errors"
	"net"
)

// replies bounds the bytes that the peer sends. redigo would allocate any size that a reply
// announces, and the peer might not be Redis.
type replies struct {
	net.Conn
	remaining int  // remaining bytes of this exchange
	inLine    bool // in the middle of a line
	kind      byte // first byte of the line: '$' and '*' announce a size
	digits    int  // of that size
}

const (
	maxReplies = 1 << 20 // bytes of an exchange: hundreds of SSPs take a tenth
	maxDigits  = 4       // of a size
)

var errReplies = errors.New("the peer is not Redis: its replies are larger than any expected reply")

// reset begins an exchange.
func (r *replies) reset() { r.remaining = maxReplies }

// Read implements net.Conn.
func (r *replies) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if r.remaining -= n; r.remaining < 0 {
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
