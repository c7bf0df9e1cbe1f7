package http2

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/http2codec"
)

// wire is a connection and its client, in a synctest bubble. The client writes frames with framer,
// sends them with send, and takes the connection's frames with receive.
type wire struct {
	t      *testing.T
	conn   *Conn
	framer *http2.Framer
	block  headerBlock
	served chan error // what Serve returned

	unsent bytes.Buffer

	mu          sync.Mutex
	in          []byte
	step        int // most bytes of a Read; 0: any number
	ended       bool
	interrupted bool
	full        chan struct{} // Writes wait until it is closed; nil: they do not wait
	wake        chan struct{} // capacity 1
	out         bytes.Buffer
}

// headerBlock encodes header blocks.
type headerBlock func(fields ...string) []byte

var wireOptions = Options{MaxStreams: 5, MaxHeaderList: 2000, ParkAfter: 200 * time.Millisecond, MaxUnread: 1 << 20}

const wireTimeout = 10 * time.Second // for a body, a response, and a frame

// newWire starts a connection, and sends the client's preface. The client hangs up at the end of the test.
func newWire(t *testing.T, opts Options) *wire {
	w := &wire{t: t, served: make(chan error, 1), wake: make(chan struct{}, 1), block: newHeaderBlock()}
	t.Cleanup(w.hangUp)
	w.conn = New(w, &gated{wire: w, requests: make(map[uint32]*gatedRequest), mostBody: mostBody}, opts)
	w.framer = http2.NewFramer(&w.unsent, &w.out)
	w.framer.AllowIllegalWrites = true
	w.unsent.WriteString(http2.ClientPreface)
	w.framer.WriteSettings()
	go func() { w.served <- w.conn.Serve() }()
	return w
}

// send sends the frames that were written, and waits until they have been handled.
func (w *wire) send() {
	w.mu.Lock()
	w.in = append(w.in, w.unsent.Bytes()...)
	w.unsent.Reset()
	w.mu.Unlock()
	w.signal()
	synctest.Wait()
}

func (w *wire) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// hangUp ends the connection on the client's side.
func (w *wire) hangUp() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.signal()
	synctest.Wait()
}

// receive takes the frames that the connection has written.
func (w *wire) receive(take func(http2.Frame)) {
	w.t.Helper()
	for w.receiveOne(take) {
	}
}

// receiveOne takes the next frame that the connection has written. It returns false if there is none.
func (w *wire) receiveOne(take func(http2.Frame)) bool {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out.Len() == 0 {
		return false
	}
	f, err := w.framer.ReadFrame()
	testsupport.MustTrue(w.t, err == nil, "the connection wrote: %v", err)
	take(f)
	return true
}

// get sends a GET on stream id.
func (w *wire) get(id uint32) {
	w.headers(id, true, get...)
	w.send()
}

// respond lets the request of stream id end with r.
func (w *wire) respond(id uint32, r *Response) {
	w.owner().requests[id].respond <- r
	synctest.Wait()
}

// stall makes the client read nothing more. readAgain ends that.
func (w *wire) stall() { w.full = make(chan struct{}) }

func (w *wire) readAgain() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.full)
	w.full = nil
}

// hasServed returns what Serve has returned, or false while it runs.
func (w *wire) hasServed() (err error, ok bool) {
	select {
	case err = <-w.served:
		return err, true
	default:
		return nil, false
	}
}

// closed reports whether the connection was closed.
func (w *wire) closed() bool {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	return w.conn.closed
}

func (w *wire) wantGoAway(code http2.ErrCode) {
	w.t.Helper()
	got, ok := w.goAway()
	testsupport.True(w.t, ok && got == code, "GOAWAY: %v, code %v, want %v", ok, got, code)
}

// goAway returns the code of the GOAWAY that the connection has written last, and whether there is
// one. Frames before it are dropped.
func (w *wire) goAway() (code http2.ErrCode, ok bool) {
	w.t.Helper()
	w.receive(func(f http2.Frame) {
		if f, is := f.(*http2.GoAwayFrame); is {
			code, ok = f.ErrCode, true
		}
	})
	return code, ok
}

// headers writes HEADERS on stream id.
func (w *wire) headers(id uint32, last bool, fields ...string) {
	w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block(fields...), EndStream: last, EndHeaders: true})
}

// Read implements io.Reader.
func (w *wire) Read(p []byte) (int, error) {
	var until *time.Timer
	for {
		w.mu.Lock()
		n := copy(p, w.in)
		if w.step > 0 {
			n = min(n, w.step)
		}
		w.in = w.in[n:]
		ended, interrupted := w.ended, w.interrupted
		w.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case ended:
			return 0, io.EOF
		case interrupted:
			return 0, os.ErrDeadlineExceeded
		}
		if until == nil {
			by, _ := w.conn.WaitUntil(false)
			until = time.NewTimer(time.Until(by))
			defer until.Stop()
		}
		select {
		case <-w.wake:
		case <-until.C:
			return 0, os.ErrDeadlineExceeded
		}
	}
}

// Write implements io.Writer.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	full := w.full
	w.mu.Unlock()
	if full != nil {
		<-full
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended && w.step == 0 {
		return 0, io.ErrClosedPipe
	}
	return w.out.Write(p)
}

func (w *wire) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupted = true
	w.signal()
}

// gated is an Owner that serves each request when the test opens its gate, and checks the calls of
// the connection.
type gated struct {
	*wire
	violations []string
	requests   map[uint32]*gatedRequest
	mostBody   int  // bytes of a body
	ungated    bool // each request is served at once
	unsent     int  // the sum of Unsent
}

func (w *wire) owner() *gated { return w.conn.owner.(*gated) }

// Timeouts implements Owner, as the next methods do.
func (*gated) Timeouts() (read, write time.Duration) { return wireTimeout, wireTimeout }
func (g *gated) Violated(rule string)                { g.violations = append(g.violations, rule) }
func (*gated) Refused(string)                        {}
func (*gated) TooManyStreams()                       {}
func (*gated) TooMuchUnread(int)                     {}
func (g *gated) Unsent(n int)                        { g.unsent += n }
func (*gated) Pause(time.Duration)                   {}
func (g *gated) Interrupt()                          { g.interrupt() }
func (g *gated) HangUp()                             { g.interrupt() }

func (g *gated) Open(s *Stream, b *http2codec.RequestBlock, last bool) (Request, *Response) {
	r := &gatedRequest{t: g.t, id: s.ID(), length: b.Length, whole: last, mostBody: g.mostBody, respond: make(chan *Response, 1)}
	g.requests[r.id] = r
	if g.ungated {
		r.respond <- &Response{
			Status: 200, Fields: fmt.Appendf(nil, "X-Id: %d\r\n", r.id), Body: fmt.Append(nil, r.id), Trailers: []byte("X-Trailer: 1\r\n"),
		}
	}
	var memory []byte
	header, method, path := b.Take(&memory)
	switch {
	case b.TooLarge:
		return r, r.refuse(431)
	case b.Malformed != "" || len(method) == 0 || !bytes.HasSuffix(header, []byte("\r\n")) || string(method) != "CONNECT" && len(path) == 0:
		g.t.Errorf("a malformed request was opened: %q %q %q %s", method, path, header, b.Malformed)
	case bytes.Count(header, []byte("\n")) != len(b.Lines)+1:
		g.t.Errorf("%d lines of a header are %q", len(b.Lines), header)
	}
	return r, nil
}

// gatedRequest is a request of gated. Conn.mu guards it.
type gatedRequest struct {
	t        *testing.T
	id       uint32
	length   int
	whole    bool // without a body
	body     int
	mostBody int
	respond  chan *Response

	served, cancelled, refused, released bool
}

// mostBody is how long a body may be.
const mostBody = 100_000

func (r *gatedRequest) Data(p []byte) *Response {
	r.body += len(p)
	if r.whole || r.length >= 0 && r.body > r.length {
		r.t.Errorf("stream %d: a body of %d bytes, want at most %d", r.id, r.body, r.length)
	}
	if r.body > r.mostBody {
		return r.refuse(413)
	}
	return nil
}

func (r *gatedRequest) refuse(status int) *Response {
	testsupport.True(r.t, !r.refused, "stream %d is refused twice", r.id)
	r.refused = true
	return &Response{Status: status, Fields: []byte("Content-Length: 0\r\n")}
}

func (r *gatedRequest) Await()              {}
func (r *gatedRequest) TimedOut() *Response { return r.refuse(408) }
func (r *gatedRequest) Dropped() *Response  { return r.refuse(408) }
func (r *gatedRequest) Unread()             {}
func (r *gatedRequest) Cancel()             { r.cancelled = true }

func (r *gatedRequest) Serve() *Response {
	if r.served || r.refused || r.length >= 0 && r.body != r.length {
		r.t.Errorf("stream %d is served with %d of %d bytes; served %v, refused %v", r.id, r.body, r.length, r.served, r.refused)
	}
	r.served = true
	return <-r.respond
}

func (r *gatedRequest) Release() {
	testsupport.True(r.t, !r.released, "stream %d is released twice", r.id)
	r.released = true
}
