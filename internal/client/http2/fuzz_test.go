package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/test/testsupport"
)

// play sends the bytes to a connection in reads of step bytes, and checks all that it writes.
func play(t *testing.T, in []byte, step int) (served int) {
	w := &wire{t: t, in: append([]byte(http2.ClientPreface), in...), step: step, ended: true}
	owner := &gated{wire: w, requests: make(map[uint32]*gatedRequest), mostBody: 1000, ungated: true}
	w.conn = New(w, owner, Options{MaxStreams: 10, MaxHeaderList: 2000, ParkAfter: time.Minute, MaxUnread: 1 << 20})
	testsupport.True(t, !errors.Is(w.conn.Serve(), ErrIdle), "a connection that has ended is idle")
	testsupport.Eventually(t, "all requests are released", func() bool { // workers may still run
		w.conn.mu.Lock()
		defer w.conn.mu.Unlock()
		served = 0
		for _, r := range owner.requests {
			if !r.released {
				return false
			}
			if r.served {
				served++
			}
		}
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	framer := http2.NewFramer(io.Discard, &w.out)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	ended, bodies := make(map[uint32]bool), make(map[uint32]string)
	for {
		frame, err := framer.ReadFrame()
		if errors.Is(err, io.EOF) {
			return served
		}
		testsupport.MustTrue(t, err == nil, "the connection wrote: %v", err)
		id := frame.Header().StreamID
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, f := range frame.RegularFields() {
				testsupport.True(t, f.Name != "x-id" || f.Value == fmt.Sprint(id), "stream %d got the response of %s", id, f.Value)
			}
			testsupport.True(t, !ended[id], "HEADERS behind the end of stream %d", id)
			ended[id] = frame.StreamEnded()
		case *http2.DataFrame:
			if bodies[id] += string(frame.Data()); !strings.HasPrefix(fmt.Sprint(id), bodies[id]) {
				t.Errorf("stream %d got %q", id, bodies[id])
			}
			testsupport.True(t, !ended[id], "DATA behind the end of stream %d", id)
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
		testsupport.True(t, play(t, bytes.Clone(in), step) != 0, "no request is served in reads of %d bytes", step)
	}
}
