package http2

import (
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// wire is a socket whose other end is the test. The test decides which bytes arrive when, and how
// writes end. It works in a synctest bubble.
type wire struct {
	mu      sync.Mutex
	in      []byte
	inErr   error // after the bytes of in
	out     []byte
	room    int   // bytes that writes may still send
	full    error // the error of a write without room; nil: the write waits
	closed  bool
	readBy  time.Time
	onWait  func() time.Time // see OnWait
	changed chan struct{}    // closed and replaced with each change
}

var (
	_ net.Conn     = (*wire)(nil)
	_ kernelSocket = (*wire)(nil)
)

func newWire() *wire { return &wire{room: 1 << 30, changed: make(chan struct{})} }

func (w *wire) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.signalLocked()
}

func (w *wire) signalLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// send delivers bytes.
func (w *wire) send(b []byte) { w.change(func() { w.in = append(w.in, b...) }) }

// end delivers the peer's FIN or error, after the bytes sent before.
func (w *wire) end(err error) { w.change(func() { w.inErr = err }) }

// take makes room for n more bytes.
func (w *wire) take(n int) { w.change(func() { w.room += n }) }

// wrote reports whether HEADERS of the stream id were written.
func (w *wire) wrote(id uint32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wroteLocked(id)
}

// awaitRequest waits until HEADERS of the stream id were written.
func (w *wire) awaitRequest(id uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.wroteLocked(id) {
		w.wait(time.Time{})
	}
}

func (w *wire) wroteLocked(id uint32) bool {
	b := w.out[min(len(h2.ClientPreface), len(w.out)):]
	for {
		f, n, _ := http2codec.ParseFrame(b)
		if n == 0 {
			return false
		}
		if b = b[n:]; f.Kind == h2.FrameHeaders && f.ID == id {
			return true
		}
	}
}

// wait waits for a change until by. mu is held.
func (w *wire) wait(by time.Time) error {
	var late <-chan time.Time
	if !by.IsZero() {
		left := time.Until(by)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		t := time.NewTimer(left)
		defer t.Stop()
		late = t.C
	}
	changed := w.changed
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-changed:
	case <-late:
	}
	return nil
}

func (w *wire) Read(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.closed:
			return 0, net.ErrClosed
		case len(w.in) > 0:
			n := copy(p, w.in)
			w.in = w.in[n:]
			return n, nil
		case w.inErr != nil:
			return 0, w.inErr
		}
		if err := w.wait(w.readBy); err != nil {
			return 0, err
		}
	}
}

// HasInput implements the method of socket.Conn.
func (w *wire) HasInput() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.in) > 0 || w.inErr != nil
}

// SendBuffer and OnWait implement the methods of socket.Conn. Reads do not call read.
func (w *wire) SendBuffer() int                  { return 0 }
func (w *wire) OnWait(_, write func() time.Time) { w.onWait = write }

func (w *wire) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var by time.Time
	for {
		if w.closed {
			return n, net.ErrClosed
		}
		m := min(w.room, len(p)-n)
		w.out = append(w.out, p[n:n+m]...)
		w.room -= m
		w.signalLocked()
		if n += m; n == len(p) {
			return n, nil
		}
		if w.full != nil {
			return n, w.full
		}
		if by.IsZero() {
			w.mu.Unlock()
			by = w.onWait()
			w.mu.Lock()
			continue // the room may have changed
		}
		if err := w.wait(by); err != nil {
			return n, err
		}
	}
}

func (w *wire) Close() error {
	w.change(func() { w.closed = true })
	return nil
}

func (w *wire) SetReadDeadline(t time.Time) error {
	w.change(func() { w.readBy = t })
	return nil
}

func (w *wire) SetWriteDeadline(time.Time) error { panic("BUG: OnWait sets the deadlines of writes") }
func (w *wire) SetDeadline(time.Time) error      { panic("BUG: OnWait sets the deadlines of writes") }

func (w *wire) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (w *wire) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// newOnWire does what New does, on a wire.
func newOnWire(conn net.Conn, w *wire, o *owner, opts Options) *Conn {
	c := newConn(conn, w, o, opts.withDefaults())
	go c.read()
	return c
}

// onWire starts a connection on a wire, in a bubble. Its peer has sent its settings.
func onWire(t testing.TB, opts Options) (*Conn, *wire, *owner) {
	t.Helper()
	w, o := newWire(), newOwner()
	c := newOnWire(w, w, o, opts)
	w.send(http2codec.AppendFrameHeader(nil, 0, h2.FrameSettings, 0, 0))
	synctest.Wait()
	return c, w, o
}

// finish closes c, and ends the peer's side.
func (w *wire) finish(c *Conn) {
	c.Close(exchange.ClosedDrain)
	w.end(errReset)
	synctest.Wait()
}

// appendPlainBlock appends a block of literals that enter no table, so that blocks can be used in
// any order.
func appendPlainBlock(b []byte, fields ...string) []byte {
	for _, f := range fields {
		if len(f) > 126 {
			panic("a long field")
		}
	}
	for i := 0; i < len(fields); i += 2 {
		b = append(b, http2codec.LiteralOnce, byte(len(fields[i])))
		b = append(append(b, fields[i]...), byte(len(fields[i+1])))
		b = append(b, fields[i+1]...)
	}
	return b
}

func appendHeaders(b []byte, id uint32, last bool, fields ...string) []byte {
	block := appendPlainBlock(nil, fields...)
	flags := h2.FlagHeadersEndHeaders
	if last {
		flags |= h2.FlagHeadersEndStream
	}
	return append(http2codec.AppendFrameHeader(b, len(block), h2.FrameHeaders, flags, id), block...)
}

func appendData(b []byte, id uint32, last bool, body string) []byte {
	var flags h2.Flags
	if last {
		flags = h2.FlagDataEndStream
	}
	return append(http2codec.AppendFrameHeader(b, len(body), h2.FrameData, flags, id), body...)
}

// appendGoAwayOf appends the peer's GOAWAY with the last stream's number.
func appendGoAwayOf(b []byte, last uint32, code h2.ErrCode) []byte {
	n := len(b) + http2codec.FrameHeaderLen
	b = http2codec.AppendGoAway(b, 0, code, "")
	b[n], b[n+1], b[n+2], b[n+3] = byte(last>>24), byte(last>>16), byte(last>>8), byte(last)
	return b
}

// errReset is the error of a socket that its peer has reset.
var errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

func (w *wire) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}
