package http1

// early holds bytes that a client sent after the current message head or chunk: the beginning of a
// body, or further requests. It has a buffer only while it is not empty.
type early struct {
	buf  *[]byte
	r, w int // (*buf)[r:w] are the bytes
}

// keep copies b, which has at most max_header_bytes. early must be empty.
func (e *early) keep(s *Server, b []byte) {
	if len(b) == 0 {
		return
	}
	e.buf = s.getBuffer()
	e.r, e.w = 0, copy(*e.buf, b)
}

// take moves as many bytes as fit to p.
func (e *early) take(server *Server, p []byte) int {
	n := copy(p, e.bytes())
	e.skip(server, n)
	return n
}

// bytes returns the bytes, which stay until skip.
func (e *early) bytes() []byte {
	if e.buf == nil {
		return nil
	}
	return (*e.buf)[e.r:e.w]
}

// skip removes n bytes.
func (e *early) skip(server *Server, n int) {
	e.r += n
	if e.r == e.w {
		e.release(server)
	}
}

// fill reads more bytes with read. The buffer must not be full.
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
