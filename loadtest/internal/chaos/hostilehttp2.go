package chaos

import (
	"errors"
	"io"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

// manyStreams is the name of the attack under which adbuffer has the most goroutines at once: one for each of
// manyStreamsEach streams on each of manyStreamsConns connections.
const (
	manyStreams      = "reads nothing and provokes frames"
	manyStreamsConns = 800
	manyStreamsEach  = 16
)

// http2Attacks are what a hostile client may do over HTTP/2.
var http2Attacks = []attack{
	{name: "opens streams without their bodies", http2: true, do: func(h *hostile) {
		f := h.http2()
		for i := range 100 + h.rnd.IntN(200) {
			open(f, i, h.drawPart(0), 200_000)
		}
		h.readAtMost(f, 1500)
	}},
	{name: "resets each stream at once", http2: true, do: func(h *hostile) {
		f := h.http2()
		for i := range 20 + h.rnd.IntN(100) {
			id := open(f, i, h.drawGET(), -1)
			_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		h.readAtMost(f, 500)
	}},
	{name: "sends many SETTINGS and PINGs", http2: true, do: func(h *hostile) {
		f := h.http2()
		for range 200 + h.rnd.IntN(2000) {
			_ = f.WritePing(false, [8]byte{})
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: h.rnd.Uint32N(1 << 20)})
		}
		h.readAtMost(f, 400)
	}},
	{name: "opens no window on many connections", http2: true, conns: 40, do: func(h *hostile) {
		f := h.http2(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range 240 {
			a := h.drawGET()
			a.path = "/single/plain"
			open(f, i, a, -1)
		}
		_ = f.Flush()
		h.hold()
	}},
	{name: manyStreams, http2: true, conns: manyStreamsConns, control: narrow, do: func(h *hostile) {
		f := h.http2()
		for i := range manyStreamsEach {
			a := h.drawGET()
			a.method, a.path, a.inHeader, a.deadline = "HEAD", "/large", true, massLength
			open(f, i, a, -1)
		}
		for range 200 {
			_ = f.WritePing(false, [8]byte{})
		}
		_ = f.Flush()
		time.Sleep(time.Until(h.end.Add(-time.Second)))
		if h.n == 0 {
			h.run.witnessMemory(h.st)
		}
		time.Sleep(time.Until(h.end))
	}},
	{name: "sends frames at random", http2: true, do: func(h *hostile) {
		f := h.http2()
		for range 1 + h.rnd.IntN(60) {
			payload := h.noise(h.rnd.IntN(200))
			_ = f.WriteRawFrame(http2.FrameType(h.rnd.IntN(12)), http2.Flags(h.rnd.Uint32()), h.rnd.Uint32N(40), payload)
		}
		h.readAtMost(f, 600)
	}},
}

// narrow gives a socket a small receive buffer and small segments, so that the kernels of both sides buffer few bytes.
func narrow(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096), unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 536))
	})
	return errors.Join(failed, err)
}

// http2 begins HTTP/2 on the connection: it buffers the preface and the settings. From twice readTimeout on, the
// connection's reads and writes fail.
func (h *hostile) http2(settings ...http2.Setting) *rawHTTP2 {
	_ = h.SetDeadline(time.Now().Add(2 * readTimeout))
	f := newRawHTTP2(h, settings...)
	f.AllowIllegalWrites = true
	return f
}

// drawGET returns a request without a body.
func (h *hostile) drawGET() *request {
	a := h.draw(1)[0]
	a.method, a.body = "GET", nil
	return a
}

// open buffers the header of a request on stream i of the client, counted from 0. The header claims a body of length
// bytes, or ends the stream if length is negative.
func open(f *rawHTTP2, i int, a *request, length int) (id uint32) {
	id = uint32(2*i + 1)
	var fields [][2]string
	if a.inHeader {
		fields = append(fields, [2]string{"x-adbuffer-timeout-ms", strconv.FormatInt(a.deadline.Milliseconds(), 10)})
	}
	f.Open(id, a.method, a.path+"?"+a.query(), length, fields...)
	return id
}

// readAtMost sends what is buffered, and reads for less than maxMillis milliseconds.
func (h *hostile) readAtMost(f *rawHTTP2, maxMillis int) {
	_ = f.Flush()
	_ = h.SetReadDeadline(time.Now().Add(time.Duration(h.rnd.IntN(maxMillis)) * time.Millisecond))
	_, _ = io.Copy(io.Discard, h)
}
