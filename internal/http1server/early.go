package http1server

import "bytes"

// early holds bytes that a client sent after the current message head or chunk: the beginning of a
// body, or further requests. It has a buffer only while it is not empty.
type early struct {
	buf      *[]byte
	r, w     int // (*buf)[r:w] are the bytes
	searched int // the first so many of them contain no LF
}

// keep copies b, which has at most max_header_bytes. early must be empty.
func (e *early) keep(s *Server, b []byte) {
	if len(b) == 0 {
		return
	}
	e.buf = s.getBuffer()
	e.r, e.w = 0, copy(*e.buf, b)
}

// take moves bytes to p, as many as fit.
func (e *early) take(server *Server, p []byte) int {
	if e.buf == nil {
		return 0
	}
	n := copy(p, (*e.buf)[e.r:e.w])
	e.skip(server, n)
	return n
}

// line returns the first line with its LF, or nil if its end has not arrived. It stays until skip.
func (e *early) line() []byte {
	if e.buf == nil {
		return nil
	}
	b := (*e.buf)[e.r:e.w]
	i := bytes.IndexByte(b[e.searched:], '\n')
	if i < 0 {
		e.searched = len(b)
		return nil
	}
	return b[:e.searched+i+1]
}

// skip removes n bytes.
func (e *early) skip(server *Server, n int) {
	e.r += n
	e.searched = 0
	if e.r == e.w {
		e.release(server)
	}
}

// fill reads further bytes with read. There must be room for them.
func (e *early) fill(server *Server, read func([]byte) (int, error)) error {
	if e.buf == nil {
		e.buf = server.getBuffer()
	}
	if e.r > 0 {
		e.r, e.w = 0, copy(*e.buf, (*e.buf)[e.r:e.w])
	}
	n, err := read((*e.buf)[e.w:])
	e.w += max(n, 0)
	if e.w == 0 {
		e.release(server)
	}
	if n > 0 {
		err = nil
	}
	return err
}

func (e *early) len() int { return e.w - e.r }

func (e *early) empty() bool { return e.buf == nil }

func (e *early) release(server *Server) {
	if e.buf != nil {
		server.putBuffer(e.buf)
		*e = early{}
	}
}

// getBuffer returns a buffer of max_header_bytes.
func (s *Server) getBuffer() *[]byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, s.options().MaxHeaderBytes)
	return &b
}

func (s *Server) putBuffer(b *[]byte) { s.buffers.Put(b) }
