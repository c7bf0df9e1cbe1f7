package http2

import (
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/upstream"
)

func TestMalformedRequestsAreNotSent(t *testing.T) {
	for name, change := range map[string]func(r *upstream.Request){
		"no target":                  func(r *upstream.Request) { r.Target = nil },
		"a space in the target":      func(r *upstream.Request) { r.Target = []byte("/a b") },
		"CRLF in the target":         func(r *upstream.Request) { r.Target = []byte("/a\r\nb: c") },
		"no authority":               func(r *upstream.Request) { r.Authority = nil },
		"NUL in the authority":       func(r *upstream.Request) { r.Authority = []byte("a\x00b") },
		"no colon":                   func(r *upstream.Request) { r.Fields = []byte("abc\r\n") },
		"no name":                    func(r *upstream.Request) { r.Fields = []byte(": abc\r\n") },
		"a pseudo-field":             func(r *upstream.Request) { r.Fields = []byte(":path: /other\r\n") },
		"a space in a name":          func(r *upstream.Request) { r.Fields = []byte("a b: c\r\n") },
		"a space behind a name":      func(r *upstream.Request) { r.Fields = []byte("a : c\r\n") },
		"NUL in a value":             func(r *upstream.Request) { r.Fields = []byte("a: b\x00c\r\n") },
		"CR in a value":              func(r *upstream.Request) { r.Fields = []byte("a: b\rc\r\n") },
		"LF in a value":              func(r *upstream.Request) { r.Fields = []byte("a: b\nc\r\n") },
		"no line end":                func(r *upstream.Request) { r.Fields = []byte("a: b") },
		"an empty line in the midst": func(r *upstream.Request) { r.Fields = []byte("a: b\r\n\r\nc: d\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			ex := upstream.AcquireExchange()
			defer ex.Release()
			ex.Request = upstream.Request{Method: upstream.POST, Body: []byte("body"), Scheme: "https", Authority: []byte("a.example"), Target: []byte("/")}
			ex.Deadline = time.Now().Add(patience)
			change(&ex.Request)
			res := result{err: p.conn.Do(ex)}
			res.wantError(t, want{outcome: upstream.Internal, progress: upstream.NotSent, detail: "malformed"})
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
	r.do(p.conn).wantError(t, want{outcome: upstream.Internal, progress: upstream.NotSent})
	testsupport.Equal(t, p.conn.CloseReason(), upstream.ClosedError, "reason %v")
}
