package chaos

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Attacks are what a hostile client does over HTTP/2.
var http2Attacks = []attack{
	{"opens streams without their bodies", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := newRaw2(c)
		for i := range 100 + rnd.IntN(200) {
			a := r.draw("a hostile client", rnd)
			a.method, a.broken = "POST", "a-part-of-a-body"
			h.open(uint32(2*i+1), a, false)
		}
		h.drain(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		end(c, rnd)
	}},
	{"resets each stream at once", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := newRaw2(c)
		for i := range 20 + rnd.IntN(100) {
			a := r.draw("a hostile client", rnd)
			a.method, a.body = "GET", nil
			h.open(uint32(2*i+1), a, true)
			_ = h.fr.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}
		h.drain(time.Duration(rnd.IntN(500)) * time.Millisecond)
		end(c, rnd)
	}},
	{"sends many SETTINGS and PINGs", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := newRaw2(c)
		for range 200 + rnd.IntN(2000) {
			_ = h.fr.WritePing(false, [8]byte{})
			_ = h.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: rnd.Uint32N(1 << 20)})
		}
		h.drain(200 * time.Millisecond)
		end(c, rnd)
	}},
	{"opens no window", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := newRaw2(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range 50 {
			a := r.draw("a hostile client", rnd)
			a.method, a.body = "GET", nil
			h.open(uint32(2*i+1), a, true)
		}
		h.drain(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		end(c, rnd)
	}},
	{"sends frames at random", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := newRaw2(c)
		for range 1 + rnd.IntN(60) {
			payload := make([]byte, rnd.IntN(200))
			for i := range payload {
				payload[i] = byte(rnd.Uint32())
			}
			_ = h.fr.WriteRawFrame(http2.FrameType(rnd.IntN(12)), http2.Flags(rnd.Uint32()), rnd.Uint32N(40), payload)
		}
		h.drain(300 * time.Millisecond)
		end(c, rnd)
	}},
}

// raw2 writes frames as they are.
type raw2 struct {
	c     net.Conn
	out   *bufio.Writer
	fr    *http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

func newRaw2(c net.Conn, settings ...http2.Setting) *raw2 {
	_ = c.SetDeadline(time.Now().Add(2 * readTimeout))
	h := &raw2{c: c, out: bufio.NewWriter(c)}
	h.enc = hpack.NewEncoder(&h.block)
	_, _ = h.out.WriteString(http2.ClientPreface)
	h.fr = http2.NewFramer(h.out, c)
	h.fr.AllowIllegalWrites = true
	_ = h.fr.WriteSettings(settings...)
	return h
}

// open writes the header of a, which ends the stream or not.
func (h *raw2) open(id uint32, a *request, last bool) {
	h.block.Reset()
	for _, f := range [][2]string{{":method", a.method}, {":scheme", "https"}, {":authority", "a"}, {":path", a.path + "?" + a.query()}} {
		_ = h.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	if !last {
		_ = h.enc.WriteField(hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(200_000)})
	}
	_ = h.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.block.Bytes(), EndHeaders: true, EndStream: last})
}

// drain writes what is left, and reads what comes for a while.
func (h *raw2) drain(d time.Duration) {
	_ = h.out.Flush()
	_ = h.c.SetReadDeadline(time.Now().Add(d))
	_, _ = io.Copy(io.Discard, h.c)
}
