package chaos

import (
	"io"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/loadtest/internal/load"
)

// http2Attacks are what a hostile client does over HTTP/2.
var http2Attacks = []attack{
	{"opens streams without their bodies", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := hostileHTTP2(c)
		for i := range 100 + rnd.IntN(200) {
			a := r.draw("a hostile client", rnd)
			a.method, a.broken = "POST", "a-part-of-a-body"
			open(h, uint32(2*i+1), a, false)
		}
		drain(h, time.Duration(rnd.IntN(1500))*time.Millisecond)
		end(c, rnd)
	}},
	{"resets each stream at once", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := hostileHTTP2(c)
		for i := range 20 + rnd.IntN(100) {
			a := r.draw("a hostile client", rnd)
			a.method, a.body = "GET", nil
			open(h, uint32(2*i+1), a, true)
			_ = h.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}
		drain(h, time.Duration(rnd.IntN(500))*time.Millisecond)
		end(c, rnd)
	}},
	{"sends many SETTINGS and PINGs", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := hostileHTTP2(c)
		for range 200 + rnd.IntN(2000) {
			_ = h.WritePing(false, [8]byte{})
			_ = h.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: rnd.Uint32N(1 << 20)})
		}
		drain(h, 200*time.Millisecond)
		end(c, rnd)
	}},
	{"opens no window", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := hostileHTTP2(c, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range 50 {
			a := r.draw("a hostile client", rnd)
			a.method, a.body = "GET", nil
			open(h, uint32(2*i+1), a, true)
		}
		drain(h, time.Duration(rnd.IntN(1500))*time.Millisecond)
		end(c, rnd)
	}},
	{"sends frames at random", func(r *run, c net.Conn, rnd *rand.Rand) {
		h := hostileHTTP2(c)
		for range 1 + rnd.IntN(60) {
			payload := make([]byte, rnd.IntN(200))
			for i := range payload {
				payload[i] = byte(rnd.Uint32())
			}
			_ = h.WriteRawFrame(http2.FrameType(rnd.IntN(12)), http2.Flags(rnd.Uint32()), rnd.Uint32N(40), payload)
		}
		drain(h, 300*time.Millisecond)
		end(c, rnd)
	}},
}

// hostileHTTP2 starts HTTP/2 on a connection, which ends after a while in any case.
func hostileHTTP2(c net.Conn, settings ...http2.Setting) *load.RawHTTP2 {
	_ = c.SetDeadline(time.Now().Add(2 * readTimeout))
	h := load.NewRawHTTP2(c, settings...)
	h.AllowIllegalWrites = true
	return h
}

// open sends the header of a request, which ends the stream or claims a body.
func open(h *load.RawHTTP2, id uint32, a *request, last bool) {
	length := 200_000
	if last {
		length = -1
	}
	h.Open(id, a.method, a.path+"?"+a.query(), length)
}

// drain writes what is left, and reads what comes for a while.
func drain(h *load.RawHTTP2, d time.Duration) {
	_ = h.Flush()
	_ = h.Conn.SetReadDeadline(time.Now().Add(d))
	_, _ = io.Copy(io.Discard, h.Conn)
}
