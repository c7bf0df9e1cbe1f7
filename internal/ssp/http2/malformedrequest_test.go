package http2

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestMalformedRequestsAreNotSent(t *testing.T) {
	for name, change := range map[string]func(r *exchange.Request){
		"no target":                  func(r *exchange.Request) { r.Target = nil },
		"a space in the target":      func(r *exchange.Request) { r.Target = []byte("/a b") },
		"CRLF in the target":         func(r *exchange.Request) { r.Target = []byte("/a\r\nb: c") },
		"no authority":               func(r *exchange.Request) { r.Authority = nil },
		"NUL in the authority":       func(r *exchange.Request) { r.Authority = []byte("a\x00b") },
		"no colon":                   func(r *exchange.Request) { r.Fields = []byte("abc\r\n") },
		"no name":                    func(r *exchange.Request) { r.Fields = []byte(": abc\r\n") },
		"a pseudo-field":             func(r *exchange.Request) { r.Fields = []byte(":path: /other\r\n") },
		"a space in a name":          func(r *exchange.Request) { r.Fields = []byte("a b: c\r\n") },
		"a space behind a name":      func(r *exchange.Request) { r.Fields = []byte("a : c\r\n") },
		"NUL in a value":             func(r *exchange.Request) { r.Fields = []byte("a: b\x00c\r\n") },
		"CR in a value":              func(r *exchange.Request) { r.Fields = []byte("a: b\rc\r\n") },
		"LF in a value":              func(r *exchange.Request) { r.Fields = []byte("a: b\nc\r\n") },
		"no line end":                func(r *exchange.Request) { r.Fields = []byte("a: b") },
		"an empty line in the midst": func(r *exchange.Request) { r.Fields = []byte("a: b\r\n\r\nc: d\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			ex := exchange.AcquireExchange()
			defer ex.Release()
			ex.Request = exchange.Request{Method: exchange.POST, Body: []byte("body"), Scheme: "https", Authority: []byte("a.example"), Target: []byte("/")}
			ex.Deadline = time.Now().Add(patience)
			change(&ex.Request)
			res := result{err: p.conn.Do(ex)}
			res.wantError(t, want{outcome: exchange.Internal, progress: exchange.NotSent, detail: "malformed"})
			p.afterwards()
			testsupport.Equal(t, p.owner.freed.Load(), 2, "%d places were freed")
			testsupport.Equal(t, p.conn.uploads.n, 0, "%d uploads are counted")
		})
	}
}

func TestMalformedRequestThatChangedTheTableClosesTheConnection(t *testing.T) {
	p := connect(t, testOptions())
	r := get("/")
	r.fields = "X-Same: 1\r\n"
	p.exchange(r, "ok")
	// The second time, the encoder puts the line into the table. Other parts of the request are
	// malformed.
	r.fields += "bad line\r\n"
	r.do(p.conn).wantError(t, want{outcome: exchange.Internal, progress: exchange.NotSent})
	testsupport.Equal(t, p.conn.CloseReason(), exchange.ClosedError, "reason %v")
}
