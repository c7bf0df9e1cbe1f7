package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"
)

// attack is a client of HTTP/1 that breaks rules or goes away.
type attack struct {
	name string
	do   func(r *run, c net.Conn, rnd *rand.Rand)
}

// attacks are what a hostile client does, one after the other at random.
var attacks = []attack{
	{"goes away while it waits", func(r *run, c net.Conn, rnd *rand.Rand) {
		_, _ = c.Write(r.draw("a hostile client", rnd).appendHTTP1(nil, false))
		time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
		end(c, rnd)
	}},
	{"goes away in a pipeline", func(r *run, c net.Conn, rnd *rand.Rand) {
		var text []byte
		for range 6 {
			text = r.draw("a hostile client", rnd).appendHTTP1(text, false)
		}
		_, _ = c.Write(text)
		_, _ = c.Read(make([]byte, 1+rnd.IntN(2000)))
		end(c, rnd)
	}},
	{"goes away in its upload", func(r *run, c net.Conn, rnd *rand.Rand) {
		a := r.draw("a hostile client", rnd)
		a.method, a.body, a.broken = "POST", requestBody(a.token, 5000), "a-part-of-a-body"
		a.chunked = rnd.IntN(2) == 0
		text := a.appendHTTP1(nil, false)
		_, _ = c.Write(text[:len(text)-1-rnd.IntN(4000)])
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		end(c, rnd)
	}},
	{"claims a body and is silent", func(r *run, c net.Conn, rnd *rand.Rand) {
		a := r.draw("a hostile client", rnd)
		a.method, a.body, a.chunked, a.broken = "POST", requestBody(a.token, 200_000), false, "a-part-of-a-body"
		text := a.appendHTTP1(nil, false)
		_, _ = c.Write(text[:len(text)-len(a.body)+rnd.IntN(100)])
		r.wantRefused(c, a)
	}},
	{"does not read its responses", func(r *run, c net.Conn, rnd *rand.Rand) {
		_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		for range 40 {
			if _, err := c.Write(r.draw("a hostile client", rnd).appendHTTP1(nil, false)); err != nil {
				break
			}
		}
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		end(c, rnd)
	}},
	{"sends a broken head", func(r *run, c net.Conn, rnd *rand.Rand) {
		a := r.draw("a hostile client", rnd)
		a.broken = "a-broken-head"
		b := brokenHeads[rnd.IntN(len(brokenHeads))]
		_, _ = c.Write([]byte(b(a)))
		r.wantRefused(c, a)
	}},
	{"sends a broken head behind correct ones", func(r *run, c net.Conn, rnd *rand.Rand) {
		var text []byte
		asks := make([]*request, 1+rnd.IntN(3))
		for i := range asks {
			asks[i] = r.draw("a hostile client", rnd)
			text = asks[i].appendHTTP1(text, false)
		}
		bad := r.draw("a hostile client", rnd)
		bad.broken = "a-broken-head"
		text = append(text, brokenHeads[rnd.IntN(len(brokenHeads))](bad)...)
		text = append(text, strings.Repeat("GET / HTTP/1.1\r\n\r\n", rnd.IntN(50))...)
		_, _ = c.Write(text)
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond) // a refused request must not destroy earlier responses
		in := bufio.NewReader(c)
		for i, a := range asks {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := in.Peek(1); err != nil {
				r.ended(asks[i:], i, err)
				return
			}
			p, err := readResponse(in, a.method)
			if err != nil {
				r.ended(asks[i:], i, &cutError{err})
				return
			}
			if r.judge(a, p, 0, 0); p.closes {
				for _, rest := range asks[i+1:] {
					r.noResponse(rest, i+1, errors.New("behind Connection: close"))
				}
				return
			}
		}
		r.wantRefusedOn(c, in, bad)
	}},
	{"connects and is silent", func(_ *run, c net.Conn, rnd *rand.Rand) {
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		end(c, rnd)
	}},
	{"sends what is not HTTP", func(_ *run, c net.Conn, rnd *rand.Rand) {
		b := make([]byte, 1+rnd.IntN(3000))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		_, _ = c.Write(b)
		_ = c.SetReadDeadline(time.Now().Add(2 * readTimeout))
		_, _ = io.Copy(io.Discard, c)
	}},
}

// brokenHeads are requests that adbuffer must refuse.
var brokenHeads = []func(*request) string{
	func(a *request) string {
		return fmt.Sprintf("GET /single?%s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde", a.query())
	},
	broken("Host: a\r\nX-A: b\r\n c\r\n"),
	broken("Host: a\nX-A: b\r\n"),
	broken("Host: a\r\nX-A : b\r\n"),
	broken("Host: a\r\nX-A: b\x00\r\n"),
	broken("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
	broken("Host: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n"),
	broken("Host: a\r\nTransfer-Encoding: gzip, chunked\r\n"),
	broken("Host: a\r\nContent-Length: +1\r\n"),
	broken("Host: a\r\nX-A: " + strings.Repeat("v", 20_000) + "\r\n"),
	broken("Host: a\r\nContent-Length: 300000\r\n"),
}

func broken(fields string) func(*request) string {
	return func(a *request) string {
		return fmt.Sprintf("POST /single?%s HTTP/1.1\r\n%s\r\n", a.query(), fields)
	}
}

// wantRefused reads the response to a request that must be refused.
func (r *run) wantRefused(c net.Conn, a *request) { r.wantRefusedOn(c, bufio.NewReader(c), a) }

func (r *run) wantRefusedOn(c net.Conn, in *bufio.Reader, a *request) {
	const wait = readTimeout + 10*time.Second
	_ = c.SetReadDeadline(time.Now().Add(wait))
	p, err := readResponse(in, "POST")
	if err != nil {
		// Closing without a word is a refusal too; silence is not.
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			r.broken.add(refused, "a request with %s was not answered within %v", a.broken, wait)
		}
		r.noResponse(a, 1, err)
		return
	}
	r.judge(a, p, 0, 0)
}

// end closes a connection, by FIN or by RST.
func end(c net.Conn, rnd *rand.Rand) {
	if t, ok := c.(*net.TCPConn); ok && rnd.IntN(2) == 0 {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// attack is a hostile client, until the context ends.
func (r *run) attack(ctx context.Context, st *instance, rnd *rand.Rand) {
	for ctx.Err() == nil {
		r.gate.RLock()
		protocol, all := "http/1.1", attacks
		if st.encrypted && rnd.IntN(2) == 0 {
			protocol, all = "h2", http2Attacks
		}
		if conn, err := r.dial(ctx, st, protocol); err == nil {
			n := all[rnd.IntN(len(all))]
			r.attacksSeen.add(0, n.name)
			n.do(r, conn, rnd)
			conn.Close()
		} else if ctx.Err() == nil {
			r.newConnectionEnded(st, nil, "hostile: connecting: %v", err)
		}
		r.gate.RUnlock()
		r.think(ctx, rnd)
	}
}
