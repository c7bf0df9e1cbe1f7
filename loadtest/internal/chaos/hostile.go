package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// attack is what a hostile client does on one connection: it violates the protocol or goes away.
type attack struct {
	name string
	do   func(h *hostile)
}

// hostile is a hostile client on one connection.
type hostile struct {
	*http1Conn
	run *run
	rnd *rand.Rand
}

// draw returns n correct requests.
func (h *hostile) draw(n int) []*request { return h.run.drawAll(n, h.st, "a hostile client", h.rnd) }

// drawPart returns a POST of which a hostile client sends a part.
func (h *hostile) drawPart(length int) *request {
	a := h.draw(1)[0]
	a.method, a.body, a.chunked, a.broken = "POST", requestBody(a.token, length), false, "a-part-of-a-body"
	return a
}

// drawBroken returns a request with a broken message head, and its text.
func (h *hostile) drawBroken() (*request, string) {
	a := h.draw(1)[0]
	a.broken = "a-broken-head"
	return a, fmt.Sprintf(brokenHeads[h.rnd.IntN(len(brokenHeads))], a.query())
}

func (h *hostile) send(asks ...*request) error {
	_, err := h.Write(newWriting(asks, false).text)
	return err
}

// wait waits for less than most milliseconds.
func (h *hostile) wait(most int) { time.Sleep(time.Duration(h.rnd.IntN(most)) * time.Millisecond) }

// noise returns random bytes.
func (h *hostile) noise(length int) []byte {
	b := make([]byte, length)
	for i := range b {
		b[i] = byte(h.rnd.Uint32())
	}
	return b
}

// http1Attacks are what a hostile client may do over HTTP/1.
var http1Attacks = []attack{
	{"goes away while it waits", func(h *hostile) {
		_ = h.send(h.draw(1)...)
		h.wait(60)
	}},
	{"goes away in a pipeline", func(h *hostile) {
		_ = h.send(h.draw(6)...)
		_, _ = h.Read(make([]byte, 1+h.rnd.IntN(2000)))
	}},
	{"goes away in its upload", func(h *hostile) {
		a := h.drawPart(5000)
		a.chunked = h.rnd.IntN(2) == 0
		text := a.http1(false)
		_, _ = h.Write(text[:len(text)-1-h.rnd.IntN(4000)])
		h.wait(20)
	}},
	{"claims a body and is silent", func(h *hostile) {
		a := h.drawPart(200_000)
		text := a.http1(false)
		_, _ = h.Write(text[:len(text)-len(a.body)+h.rnd.IntN(100)])
		h.wantRefused(a)
	}},
	{"does not read its responses", func(h *hostile) {
		_ = h.SetWriteDeadline(time.Now().Add(2 * time.Second))
		for n := 0; n < 40 && h.send(h.draw(1)...) == nil; n++ {
		}
		h.wait(1500)
	}},
	{"sends a broken head", func(h *hostile) {
		a, text := h.drawBroken()
		_, _ = io.WriteString(h, text)
		h.wantRefused(a)
	}},
	{"sends a broken head behind correct ones", func(h *hostile) {
		asks := h.draw(1 + h.rnd.IntN(3))
		bad, text := h.drawBroken()
		text += strings.Repeat("GET / HTTP/1.1\r\n\r\n", h.rnd.IntN(50))
		_, _ = h.Write(append(newWriting(asks, false).text, text...))
		h.wait(300) // a refused request must not destroy earlier responses
		if h.run.responses(h.http1Conn, clientKind{}, asks, func(int) time.Time { return time.Now() }) {
			h.wantRefused(bad)
		}
	}},
	{"connects and is silent", func(h *hostile) { h.wait(1500) }},
	{"sends what is not HTTP", func(h *hostile) {
		_, _ = h.Write(h.noise(1 + h.rnd.IntN(3000)))
		_ = h.SetReadDeadline(time.Now().Add(2 * readTimeout))
		_, _ = io.Copy(io.Discard, h)
	}},
}

// brokenHeads are requests that adbuffer must refuse. %s stands for the query.
var brokenHeads = []string{
	"GET /single?%s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
	post + "Host: a\r\nX-A: b\r\n c\r\n\r\n",
	post + "Host: a\nX-A: b\r\n\r\n",
	post + "Host: a\r\nX-A : b\r\n\r\n",
	post + "Host: a\r\nX-A: b\x00\r\n\r\n",
	post + "Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
	post + "Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
	post + "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
	post + "Host: a\r\nContent-Length: +1\r\n\r\n",
	post + "Host: a\r\nX-A: " + strings.Repeat("v", 20_000) + "\r\n\r\n",
	post + "Host: a\r\nContent-Length: 300000\r\n\r\n",
}

const post = "POST /single?%s HTTP/1.1\r\n"

// wantRefused reads the response to a request that adbuffer must refuse. adbuffer may also refuse it
// by closing the connection without a response.
func (h *hostile) wantRefused(a *request) {
	const wait = readTimeout + 10*time.Second
	_ = h.SetReadDeadline(time.Now().Add(wait))
	p, err := readResponse(h.in, "POST")
	switch {
	case err == nil:
		h.run.judge(a, p, 0, 0)
		return
	case timedOut(err):
		h.run.broken.add(refused, "a request with %s got no response within %v", a.broken, wait)
	}
	h.run.noResponse(a, 1, err)
}

// attack makes one attack on a connection of its own, and closes the connection by FIN or by RST.
func (r *run) attack(ctx context.Context, st *instance, rnd *rand.Rand) error {
	protocol, all := "http/1.1", http1Attacks
	if st.encrypted && rnd.IntN(2) == 0 {
		protocol, all = "h2", http2Attacks
	}
	conn, err := r.dial(ctx, st, "a hostile client", protocol)
	if err != nil {
		return err
	}
	defer conn.Close()
	a := all[rnd.IntN(len(all))]
	r.attacksSeen.add(0, a.name)
	a.do(&hostile{run: r, http1Conn: &http1Conn{Conn: conn, st: st, in: bufio.NewReader(conn)}, rnd: rnd})
	if t, ok := conn.(*net.TCPConn); ok && rnd.IntN(2) == 0 {
		_ = t.SetLinger(0)
	}
	return nil
}
