package socket

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// records is read by crypto/tls. No read returns bytes beyond the end of the current TLS record.
//
// crypto/tls reads ahead. If the peer sends bytes after a response, they could be in the buffer of crypto/tls, where
// Peek would miss them, and would be taken for the start of the next response. So records reads ahead below TLS, and
// gives crypto/tls no byte beyond the end of a record. After a response, all further bytes are either in records or
// in the socket, and Peek checks both.
//
// A record is a header of five bytes (type, version, length) and length bytes. RFC 8446, section
// 5.1; the same in TLS 1.2.
type records struct {
	buf        *[]byte // from recordBuffers while it holds bytes, else nil
	r, w       int     // buf[r:w] was read from the socket and not yet passed to TLS
	recordLeft int     // bytes of the current record that were not passed to TLS
	head       [recordHeader]byte
	headBytes  int  // bytes of the next record's header that were passed to TLS
	received   bool // a byte has been read from the socket
}

const (
	recordHeader = 5
	recordBuffer = 16 << 10
)

var recordBuffers = sync.Pool{New: func() any { b := make([]byte, recordBuffer); return &b }}

// errNoCloseNotify replaces io.EOF at the end of the socket's stream. crypto/tls treats io.EOF after a whole record
// like close_notify, so a truncated response that ends with the connection would count as complete. RFC 9112, section
// 9.8.
//
// The error must wrap io.ErrUnexpectedEOF and not be it: at the end of a record, crypto/tls turns an error that is
// equal (==) to io.ErrUnexpectedEOF into io.EOF.
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
		r.buf, r.r, r.w, r.received = b, 0, n, true
	}
	buf, n := *r.buf, 0
	for n < len(p) && r.r < r.w {
		if r.recordLeft == 0 && n > 0 && r.headBytes == 0 {
			break // the record ends here
		}
		if r.recordLeft == 0 { // within a header
			r.head[r.headBytes] = buf[r.r]
			p[n] = buf[r.r]
			r.headBytes++
			r.r++
			n++
			if r.headBytes == recordHeader {
				r.recordLeft, r.headBytes = int(r.head[3])<<8|int(r.head[4]), 0
				if r.recordLeft == 0 {
					break
				}
			}
			continue
		}
		m := copy(p[n:], buf[r.r:min(r.w, r.r+r.recordLeft)])
		r.r += m
		r.recordLeft -= m
		n += m
	}
	if r.r == r.w {
		r.releaseBuffer()
	}
	return n, nil
}

// atRecordEnd reports whether all bytes read were passed to TLS, and ended with the end of a record.
func (r *records) atRecordEnd() bool { return r.r == r.w && r.recordLeft == 0 && r.headBytes == 0 }

func (r *records) releaseBuffer() {
	recordBuffers.Put(r.buf)
	r.buf, r.r, r.w = nil, 0, 0
}

// Records makes c return its bytes record by record, for a TLS connection on top of it. It must be called before the
// first Read. Without Records, ReadAhead, HasReceived and MidRecord are always false.
func (c *Conn) Records() { c.records = new(records) }

// ReadAhead reports whether bytes have been read from the socket and not yet passed to TLS, so that the next Read makes
// no system call. It must not run at the same time as a Read.
func (c *Conn) ReadAhead() bool { return c.records != nil && c.records.r < c.records.w }

// HasReceived reports whether any byte has been read from the socket. A failed handshake with a peer that has sent
// nothing gets another error text. It must not run at the same time as a Read.
func (c *Conn) HasReceived() bool { return c.records != nil && c.records.received }

// MidRecord reports whether bytes of a TLS record have been read from the socket, but TLS has not received the whole
// record. The rest may be in the buffer or still to come. It must not run at the same time as a Read.
func (c *Conn) MidRecord() bool { return c.records != nil && !c.records.atRecordEnd() }
