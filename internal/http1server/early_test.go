package http1server

import (
	"bytes"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

// A trailer that arrives byte by byte must cost about as much as one that arrives at once: before, each
// byte cost a search through all bytes before it.
func TestLineInManyPiecesIsSearchedOnce(t *testing.T) {
	const size = 1 << 20
	s := new(Server)
	s.current.Store(&Options{MaxHeaderBytes: size})
	text := append(bytes.Repeat([]byte{'a'}, size-1), '\n')
	read := func(step int) time.Duration {
		return testsupport.ThreadTime(func() {
			var e early
			in := bytes.NewReader(text)
			for e.line() == nil {
				err := e.fill(s, func(b []byte) (int, error) { return in.Read(b[:min(step, len(b))]) })
				testsupport.NoError(t, err)
			}
			testsupport.MustEqual(t, len(e.line()), size, "a line of %d bytes")
			e.skip(s, size)
		})
	}
	whole := max(min(read(size), read(size), read(size)), time.Millisecond)
	testsupport.AtMost(t, read(1), 2000*whole, "%v byte by byte, %v at once", whole)
}
