package http2codec

import (
	"testing"

	"adbuffer/internal/test/testsupport"

	h2 "golang.org/x/net/http2"
)

func TestSendWindows(t *testing.T) {
	var first, second Credit
	w := NewSendWindows()
	wantWindows := func(what string, conn, ofFirst, ofSecond int64) {
		t.Helper()
		testsupport.Equal(t, [3]int64{w.Conn, w.Of(first), w.Of(second)}, [3]int64{conn, ofFirst, ofSecond}, "%[3]s: the windows are %[1]v", what)
	}
	wantWindows("at first", 65535, 65535, 65535)
	w.Sent(&first, 1000)
	wantWindows("after DATA", 64535, 64535, 65535)
	w.Initial = 100
	wantWindows("after a smaller initial window", 64535, -900, 100)
	testsupport.True(t, w.GrowStream(&first, 1000) == nil, "a WINDOW_UPDATE of a stream failed")
	wantWindows("after a WINDOW_UPDATE of a stream", 64535, 100, 100)
	testsupport.True(t, w.Grow(465) == nil, "a WINDOW_UPDATE of the connection failed")
	wantWindows("after a WINDOW_UPDATE of the connection", 65000, 100, 100)
}

func TestSendWindowsAreAtMost31Bits(t *testing.T) {
	code := func(e *Error) h2.ErrCode {
		if e == nil {
			return h2.ErrCodeNo
		}
		return e.Code
	}
	for _, c := range []struct {
		increment int64
		want      h2.ErrCode
	}{{0, h2.ErrCodeProtocol}, {1, h2.ErrCodeNo}, {2147418112, h2.ErrCodeNo}, {2147418113, h2.ErrCodeFlowControl}, {2147483647, h2.ErrCodeFlowControl}} {
		w := NewSendWindows()
		testsupport.Equal(t, code(w.Grow(c.increment)), c.want, "the connection's window grows by %[3]d: %[1]v", c.increment)
		var credit Credit
		testsupport.Equal(t, code(w.GrowStream(&credit, c.increment)), c.want, "a stream's window grows by %[3]d: %[1]v", c.increment)
		testsupport.Equal(t, w.Overflows(credit), c.increment > 2147418112, "after %[3]d, a window is too large: %[1]v", c.increment)
	}
	f := Frame{Payload: []byte{0xff, 0, 0, 5}}
	testsupport.Equal(t, IncrementOf(f), 0x7f000005, "the reserved bit counts: %#x")
}
