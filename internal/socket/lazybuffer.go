package socket

import "sync"

// lazyBuffer lets a connection wait for its peer without a buffer. fasthttp's
// server, told to save memory, reads the first byte of a request by itself and
// takes a buffer only then, which costs a system call more for each request.
// With a lazyBuffer that first byte's Read takes all that has come, into a
// buffer from a pool that is all connections', and the Reads after it are
// served from there.
type lazyBuffer struct {
	pool *sync.Pool // of *[]byte, all of one size
	call func(fd uintptr) bool

	buf  *[]byte // nil while nothing is in it
	r, w int     // (*buf)[r:w] was read from the socket and not handed over
}

// LazyBuffer makes a Read of one byte take all that has come, for the Reads
// behind it, into a buffer of pool, which holds *[]byte. An idle connection
// holds none. It must be called before the first Read.
func (c *Conn) LazyBuffer(pool *sync.Pool) {
	if c.raw != nil {
		c.lazy = &lazyBuffer{pool: pool, call: c.recvLazily}
	}
}

// recvLazily is direct.recv into a buffer that is taken only for the call.
func (c *Conn) recvLazily(fd uintptr) bool {
	l := c.lazy
	l.buf = l.pool.Get().(*[]byte)
	c.in.buf = *l.buf
	done := c.in.recv(fd)
	if c.in.buf = nil; c.in.n == 0 {
		l.pool.Put(l.buf)
		l.buf = nil
	}
	return done
}

func (c *Conn) readLazily(p []byte) (int, error) {
	l := c.lazy
	if l.buf == nil {
		if len(p) != 1 {
			return c.readSocket(p)
		}
		n, err := c.readUntilDeadline(nil, l.call)
		if n == 0 {
			return 0, err
		}
		l.r, l.w = 0, n
	}
	n := copy(p, (*l.buf)[l.r:l.w])
	if l.r += n; l.r == l.w {
		l.pool.Put(l.buf)
		l.buf = nil
	}
	return n, nil
}
