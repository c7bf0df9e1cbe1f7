package proxy

import "bytes"

// requestLine finds a bare LF at the end of a request line, which fasthttp takes
// without a word and does not show. It sees the line of each request that
// starts a read; of pipelined ones, the first.
type requestLine struct {
	open bool // within the line
	bare bool // it ended in a bare LF
	some bool // a byte of it has come
	last byte

	begun bool // a byte has come, if only of an empty line before it
}

func (l *requestLine) expect() { *l = requestLine{open: true} }

// awaited reports whether no byte of the line was seen yet.
func (l *requestLine) awaited() bool { return l.open && !l.begun }

func (l *requestLine) see(b []byte) {
	l.begun = true
	for l.open {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			if len(b) > 0 {
				l.last = b[len(b)-1]
				l.some = l.some || len(b) > 1 || l.last != '\r'
			}
			return
		}
		before := l.last
		if i > 0 {
			before = b[i-1]
		}
		l.bare = l.bare || before != '\r'
		l.open = i <= 1 && !l.some // an empty line before the request line is allowed
		l.last = 0
		b = b[i+1:]
	}
}
