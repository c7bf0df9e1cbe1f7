package socket

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// records stops reads of TLS at the end of each record.
//
// crypto/tls reads ahead. Bytes after a response would be in its buffer, and a Peek at the socket
// would miss them. They would be read as the start of the next response. So records reads ahead
// below TLS, and gives TLS no byte beyond the end of a record. After a response, all bytes that
// have arrived are either here or in the socket. Peek checks both.
//
// A record is a header of five bytes (type, version, length) and length bytes. RFC 8446, section
// 5.1; the same in TLS 1.2.
type records struct {
	buf   *[]byte // from recordBuffers while it holds bytes, else nil
	r, w  int     // buf[r:w] was read from the socket and not yet passed to TLS
	left  int     // bytes of the current record that have not been returned
	head  [recordHeader]byte
	nhead int  // bytes of the next record's header that were passed to TLS
	begun bool // a byte has been read from the socket
}

const (
	recordHeader = 5
	recordBuffer = 16 << 10
)

var recordBuffers = sync.Pool{New: func() any { b := make([]byte, recordBuffer); return &b }}

// errNoCloseNotify is the end of the socket without TLS's close_notify. crypto/tls treats io.EOF
// after a whole record like close_notify. A response that ends with the connection and was cut
// would then count as complete. RFC 9112, section 9.8.
var errNoCloseNotify = fmt.Errorf("the peer closed the connection without TLS's close_notify: %w", io.ErrUnexpectedEOF)

func (r *records) read(p []byte, socket func([]byte) (int, error)) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.r == r.w {
		b := recordBuffers.Get().(*[]byte)
		n, err := socket(*b)
		if n <= 0 {
			recordBuffers.Put(b)
			if errors.Is(err, io.EOF) {
				err = errNoCloseNotify
			}
			return 0, err
		}
		r.buf, r.r, r.w, r.begun = b, 0, n, true
	}
	buf, n := *r.buf, 0
	for n < len(p) && r.r < r.w {
		if r.left == 0 && n > 0 && r.nhead == 0 {
			break // the record ends here
		}
		if r.left == 0 { // within a header
			r.head[r.nhead] = buf[r.r]
			p[n] = buf[r.r]
			r.nhead++
			r.r++
			n++
			if r.nhead == recordHeader {
				r.left, r.nhead = int(r.head[3])<<8|int(r.head[4]), 0
				if r.left == 0 {
					break
				}
			}
			continue
		}
		m := copy(p[n:], buf[r.r:min(r.w, r.r+r.left)])
		r.r += m
		r.left -= m
		n += m
	}
	if r.r == r.w {
		r.release()
	}
	return n, nil
}

// between reports whether all bytes read were passed to TLS, and ended with a record.
func (r *records) between() bool { return r.r == r.w && r.left == 0 && r.nhead == 0 }

func (r *records) release() {
	recordBuffers.Put(r.buf)
	r.buf, r.r, r.w = nil, 0, 0
}

// Records makes c return its bytes record by record, for a TLS connection on top of it. It must be
// called before the first Read.
func (c *Conn) Records() { c.records = new(records) }

// ReadAhead reports whether bytes were read from the socket and not yet passed to TLS. It must not
// run at the same time as a Read.
func (c *Conn) ReadAhead() bool { return c.records != nil && c.records.r < c.records.w }

// HasReceived reports whether any byte was read from the socket. It must not run at the
// same time as a Read.
func (c *Conn) HasReceived() bool { return c.records != nil && c.records.begun }

// MidRecord reports whether a part of a TLS record was read whose end was not passed to TLS. It
// must not run at the same time as a Read.
func (c *Conn) MidRecord() bool { return c.records != nil && !c.records.between() }
