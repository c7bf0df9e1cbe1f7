package proxy

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"sync"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// readBody reads the whole body into r.body, within server.max_body_bytes and the budget. It reserves at
// most twice the bytes that have arrived, plus firstRoom. The request stays registered as an upload until
// it is in flight.
func (p *Proxy) readBody(r *request) *refusal {
	f := p.fillBody(r)
	if f != nil && f.Outcome == exchange.BadRequest && p.uploads.unregister(&r.upload, false) {
		return p.uploadDropped()
	}
	return f
}

func (p *Proxy) fillBody(r *request) *refusal {
	if r.source == nil {
		return nil
	}
	limit, room, f := r.bodyRoom()
	if f != nil {
		return f
	}
	length := r.fields.ContentLength()
	for {
		if len(r.body) == r.room {
			if f := p.growBody(r, room); f != nil {
				return f
			}
		}
		n, err := r.source.Read(r.body[len(r.body):r.room])
		r.body = r.body[:len(r.body)+n]
		switch {
		case len(r.body) > limit, errors.Is(err, syntax.ErrChunksTooLarge):
			return r.bodyTooLarge()
		case len(r.body) > 0 && r.ssp.Method != exchange.POST:
			return bodyNotAllowed()
		case len(r.body) == limit && length >= 0, errors.Is(err, io.EOF) && length < 0:
			return nil
		case err == nil:
		case errors.Is(err, syntax.ErrTrailerTooLarge):
			return http1.Malformed(fmt.Sprintf("the body's trailer is over %d bytes; see server.max_header_bytes", r.opts.MaxHeaderBytes))
		case errors.Is(err, syntax.ErrChunkLine), errors.Is(err, syntax.ErrChunkExcess):
			return http1.Malformed("the body is malformed: " + err.Error())
		case errors.Is(err, os.ErrDeadlineExceeded):
			return r.opts.NotReadInTime()
		default:
			return http1.Malformed("the body is malformed or ended early")
		}
	}
}

// bodyRoom returns how long the body may be, and how many bytes to read at most. For a body without a
// stated length, room is one byte more than limit, to detect a body that is too long.
func (r *request) bodyRoom() (limit, room int, f *refusal) {
	length, limit := r.fields.ContentLength(), r.opts.MaxBodyBytes
	switch {
	case length > int64(limit):
		return 0, 0, r.bodyTooLarge()
	case length >= 0:
		return int(length), int(length), nil
	}
	return limit, limit + 1, nil
}

// addBody appends a piece to the body of a request over HTTP/2. It reserves memory like readBody.
func (p *Proxy) addBody(r *request, piece []byte) *refusal {
	limit, room, f := r.bodyRoom()
	switch {
	case f != nil:
		return f
	case r.ssp.Method != exchange.POST:
		return bodyNotAllowed()
	case len(r.body)+len(piece) > limit:
		return r.bodyTooLarge()
	}
	for len(piece) > 0 {
		if len(r.body) == r.room {
			if f := p.growBody(r, room); f != nil {
				return f
			}
		}
		n := copy(r.body[len(r.body):r.room], piece)
		r.body, piece = r.body[:len(r.body)+n], piece[n:]
	}
	return nil
}

// firstRoom is how many bytes are reserved for a body before its first byte has arrived.
const firstRoom = 4096

// growBody doubles the room for the body, up to limit bytes.
func (p *Proxy) growBody(r *request, limit int) *refusal {
	room := min(max(firstRoom, 2*len(r.body)), limit)
	if !p.budget.Reserve(int64(room - r.room)) {
		return bufferFull(p.budget)
	}
	p.uploads.addBytes(&r.upload, int64(room-r.room))
	buf := bodyBuffer(room)
	r.body = append((*buf)[:0], r.body...)
	r.freeBuffer()
	r.buffer, r.room = buf, room
	return nil
}

// freeBody frees the memory of r.body and its reservation in the budget.
func (p *Proxy) freeBody(r *request) {
	if r.room == 0 {
		return
	}
	p.budget.Release(int64(r.room))
	r.freeBuffer()
	r.body, r.room = nil, 0
}

func (r *request) freeBuffer() {
	if r.buffer != nil {
		if i := bufferSize(cap(*r.buffer)); i < len(bodyBuffers) {
			bodyBuffers[i].Put(r.buffer)
		}
		r.buffer = nil
	}
}

// bodyBuffers holds free buffers for bodies, of firstRoom bytes at index 0 and twice as many at each next
// index. Buffers are not kept with the reused requests, so that a request with a small body does not hold
// the memory of a large one.
var bodyBuffers [8]sync.Pool

// bufferSize returns the index in bodyBuffers of the smallest size that holds n bytes.
func bufferSize(n int) int { return bits.Len(uint(max(n, 1)-1) / firstRoom) }

// bodyBuffer returns a buffer of n bytes or more.
func bodyBuffer(n int) *[]byte {
	i := bufferSize(n)
	if i < len(bodyBuffers) {
		if b, ok := bodyBuffers[i].Get().(*[]byte); ok {
			return b
		}
		n = firstRoom << i
	}
	b := make([]byte, n)
	return &b
}
