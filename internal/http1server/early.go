package http1server

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

// take moves bytes to p, as many as fit.
func (e *early) take(server *Server, p []byte) int {
	if e.buf == nil {
		return 0
	}
	n := copy(p, (*e.buf)[e.r:e.w])
	e.r += n
	if e.r == e.w {
		e.release(server)
	}
	return n
}

// next removes and returns a byte. early must not be empty.
func (e *early) next(server *Server) byte {
	c := (*e.buf)[e.r]
	e.r++
	if e.r == e.w {
		e.release(server)
	}
	return c
}

// fill reads bytes with read. early must be empty.
func (e *early) fill(server *Server, read func([]byte) (int, error)) error {
	buf := server.getBuffer()
	n, err := read(*buf)
	if n <= 0 {
		server.putBuffer(buf)
		return err
	}
	e.buf, e.r, e.w = buf, 0, n
	return nil
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
