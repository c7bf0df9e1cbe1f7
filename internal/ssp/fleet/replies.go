package fleet

import (
	"errors"
	"net"
)

// replies bounds the bytes that the peer sends, and the sizes that its replies announce. redigo would allocate
// whatever size a reply announces, and the peer might not be Redis.
type replies struct {
	net.Conn
	remaining int  // how many bytes may still arrive in this exchange
	inLine    bool // the last byte was within a line
	kind      byte // first byte of the line: '$' and '*' announce a size
	digits    int  // number of digits of the size so far
}

const (
	maxReplies      = 1 << 20 // bytes of an exchange; thousands of SSPs need less
	arrayBytes      = 256     // bytes that an array counts in addition, since nested arrays take memory and stack
	maxArrayDigits  = 1       // digits of an array's size
	maxStringDigits = 4       // digits of a string's size
)

var errReplies = errors.New("the peer is not Redis: its replies are larger than any expected reply")

// reset begins an exchange.
func (r *replies) reset() { r.remaining = maxReplies }

// Read implements net.Conn.
func (r *replies) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.remaining -= n
	for _, c := range b[:n] {
		switch {
		case c == '\n':
			r.inLine = false
		case !r.inLine:
			r.inLine, r.kind, r.digits = true, c, 0
			if c == '*' {
				r.remaining -= arrayBytes
			}
		case c != '\r':
			r.digits++
		}
		if r.remaining < 0 || r.kind == '*' && r.digits > maxArrayDigits || r.kind == '$' && r.digits > maxStringDigits {
			return 0, errReplies
		}
	}
	return n, err
}
