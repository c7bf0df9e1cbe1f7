package http2server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/testsupport"
)

// tape is a client that sends prepared bytes, in reads of a few bytes or many, and then closes. It
// keeps the bytes that it receives.
type tape struct {
	mu   sync.Mutex
	in   []byte
	step int
	out  bytes.Buffer
}

func (t *tape) Read(p []byte) (int, error) {
	if len(t.in) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), t.step)], t.in)
	t.in = t.in[n:]
	return n, nil
}

func (t *tape) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Write(p)
}

// judge is an Owner that checks the calls of the connection.
type judge struct {
	t                        *testing.T
	opened, served, released atomic.Int32
}

func (*judge) Timeouts() (read, write time.Duration) { return time.Minute, time.Minute }
func (*judge) Violated(string)                       {}
func (*judge) Refused(string)                        {}
func (*judge) TooManyStreams()                       {}
func (*judge) TooMuchUnread(int)                     {}
func (*judge) Interrupt()                            {}
func (*judge) HangUp()                               {}

func (j *judge) Open(s *Stream, b *http2codec.RequestBlock, last bool) (Request, *Response) {
	j.opened.Add(1)
	var memory []byte
	header, method, path := b.Take(&memory)
	r := &judged{judge: j, stream: s, id: s.ID(), whole: last, length: b.Length}
	switch {
	case b.TooLarge:
		return r, &Response{Status: 431}
	case b.Malformed != "" || len(method) == 0 || !bytes.HasSuffix(header, []byte("\r\n")) || string(method) != "CONNECT" && len(path) == 0:
		j.t.Errorf("a malformed request was opened: %q %q %q %s", method, path, header, b.Malformed)
	case strings.Count(string(header), "\n") != len(b.Lines)+1:
		j.t.Errorf("%d lines of a header are %q", len(b.Lines), header)
	}
	return r, nil
}

// judged is a request of judge.
type judged struct {
	judge    *judge
	stream   *Stream
	id       uint32
	whole    bool // no body was announced
	length   int
	got      int
	served   bool
	released bool
}

func (r *judged) Data(p []byte) *Response {
	if r.got += len(p); r.whole || r.length >= 0 && r.got > r.length {
		r.judge.t.Errorf("stream %d: a body of %d bytes, want at most %d", r.id, r.got, r.length)
	}
	if r.got > 1000 {
		return &Response{Status: 413, Body: fmt.Append(nil, r.id)}
	}
	return nil
}

func (r *judged) Await()              {}
func (r *judged) Cancel()             {}
func (r *judged) TimedOut() *Response { return &Response{Status: 408} }
func (r *judged) Dropped() *Response  { return &Response{Status: 408} }
func (r *judged) Unread()             {}

func (r *judged) Serve() *Response {
	r.judge.served.Add(1)
	if r.served || r.got > 1000 || r.length >= 0 && r.got != r.length {
		r.judge.t.Errorf("stream %d is served with %d of %d bytes", r.id, r.got, r.length)
	}
	r.served = true
	return &Response{Status: 200, Fields: fmt.Appendf(nil, "X-Id: %d\r\n", r.id), Body: fmt.Append(nil, r.id), Trailers: []byte("X-Trailer: 1\r\n")}
}

func (r *judged) Release() {
	if r.released {
		r.judge.t.Errorf("stream %d is released twice", r.id)
	}
	r.released = true
	r.judge.released.Add(1)
}

// play sends the bytes to a connection, and checks all that it writes.
func play(t *testing.T, in []byte, step int) (served int32) {
	j := &judge{t: t}
	client := &tape{in: append([]byte(http2.ClientPreface), in...), step: step}
	c := New(client, j, Options{MaxStreams: 10, MaxHeaderList: 2000, ParkAfter: time.Minute, MaxUnread: 1 << 20})
	if err := c.Serve(); errors.Is(err, ErrIdle) {
		t.Error("a connection that has ended is idle")
	}
	for end := time.Now().Add(testsupport.Patience); j.released.Load() < j.opened.Load(); time.Sleep(time.Millisecond) { // workers may still run
		if time.Now().After(end) {
			t.Fatalf("%d of %d requests are released", j.released.Load(), j.opened.Load())
		}
	}
	client.mu.Lock()
	defer client.mu.Unlock()
	framer := http2.NewFramer(io.Discard, &client.out)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	ended, bodies := make(map[uint32]bool), make(map[uint32]string)
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			return j.served.Load()
		}
		if err != nil {
			t.Fatalf("the connection wrote: %v", err)
		}
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, f := range frame.RegularFields() {
				if f.Name == "x-id" && f.Value != fmt.Sprint(id) {
					t.Errorf("stream %d got the response of %s", id, f.Value)
				}
			}
			if ended[id] {
				t.Errorf("HEADERS behind the end of stream %d", id)
			}
			ended[id] = frame.StreamEnded()
		case *http2.DataFrame:
			if bodies[id] += string(frame.Data()); !strings.HasPrefix(fmt.Sprint(id), bodies[id]) {
				t.Errorf("stream %d got %q", id, bodies[id])
			}
			if ended[id] {
				t.Errorf("DATA behind the end of stream %d", id)
			}
			ended[id] = frame.StreamEnded()
		}
	}
}

// script writes frames for a seed.
func script(write func(f *http2.Framer, block headerBlock)) []byte {
	var out bytes.Buffer
	f := http2.NewFramer(&out, nil)
	f.AllowIllegalWrites = true
	f.WriteSettings()
	write(f, newHeaderBlock())
	return out.Bytes()
}

func newHeaderBlock() headerBlock {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	return func(fields ...string) []byte {
		b.Reset()
		for i := 0; i < len(fields); i += 2 {
			enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		return bytes.Clone(b.Bytes())
	}
}

var get = []string{":method", "GET", ":scheme", "https", ":authority", "a", ":path", "/"}
var post = []string{":method", "POST", ":scheme", "https", ":authority", "a", ":path", "/", "content-length", "4"}

// For any bytes of a client, the connection neither panics nor hangs. A request is served once, and
// only if it is whole and well-formed. Each stream gets its own response, and a request's memory is
// released once.
func FuzzConnection(f *testing.F) {
	headers := func(fr *http2.Framer, id uint32, end bool, block []byte) {
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end})
	}
	f.Add(script(func(fr *http2.Framer, block headerBlock) {
		headers(fr, 1, true, block(get...))
		headers(fr, 3, false, block(post...))
		fr.WriteData(3, true, []byte("body"))
		fr.WriteRSTStream(1, http2.ErrCodeCancel)
		fr.WriteWindowUpdate(0, 100)
		headers(fr, 5, true, block(append(get, "te", "trailers", "cookie", "a", "cookie", "b")...))
	}), uint16(7))
	f.Add(script(func(fr *http2.Framer, block headerBlock) {
		fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		headers(fr, 1, true, block(get...))
		headers(fr, 3, false, block(post...))
		headers(fr, 3, true, block("x-t", "1"))
		fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		fr.WriteWindowUpdate(1, 1)
		fr.WriteGoAway(0, http2.ErrCodeNo, nil)
		fr.WritePing(false, [8]byte{})
	}), uint16(60000))
	f.Add(script(func(fr *http2.Framer, block headerBlock) {
		b := block(append(post, "x-long", strings.Repeat("x", 1000))...)
		fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:10]})
		fr.WriteContinuation(1, false, b[10:20])
		fr.WriteContinuation(1, true, b[20:])
		fr.WriteDataPadded(1, true, []byte("body"), make([]byte, 9))
	}), uint16(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint16) { play(t, in, max(int(step), 1)) })
}

func TestWellFormedRequestsAreServed(t *testing.T) {
	in := script(func(fr *http2.Framer, block headerBlock) {
		fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		for i := range uint32(9) {
			fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block(get...), EndHeaders: true, EndStream: true})
		}
		fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2})
	})
	for _, step := range []int{1, 13, 1 << 16} {
		if n := play(t, bytes.Clone(in), step); n == 0 {
			t.Errorf("no request is served in reads of %d bytes", step)
		}
	}
}
