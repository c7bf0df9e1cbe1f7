package proxy

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/upstream"
)

// streamHeader is the header of a request as a client sends it over HTTP/2. fields are
// name and value, with any bytes.
type streamHeader struct {
	method, target, host string
	fields               [][2]string
	last                 bool // END_STREAM
}

// newStreamHeader reads fields as lines of "name<1f>value", each ended by <1e>.
func newStreamHeader(method, target, host, fields string, bodyOpen bool) *streamHeader {
	h := &streamHeader{method: method, target: target, host: host, last: !bodyOpen}
	for f := range strings.SplitSeq(fields, "\x1e") {
		if name, value, ok := strings.Cut(f, "\x1f"); ok {
			h.fields = append(h.fields, [2]string{name, value})
		}
	}
	return h
}

// check lets the codec and r check the header. taken is false if the stream is reset.
func (h *streamHeader) check(t *testing.T, r *request) (taken bool, f *refusal) {
	var wire bytes.Buffer
	enc := hpack.NewEncoder(&wire)
	write := func(name, value string) {
		if err := enc.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	write(":method", h.method)
	write(":scheme", "https")
	if h.host != "" {
		write(":authority", h.host)
	}
	write(":path", h.target)
	for _, f := range h.fields {
		write(f[0], f[1])
	}
	d := http2codec.NewDecoder()
	b := &http2codec.RequestBlock{Limit: 2*r.opts.MaxHeaderBytes + 8<<10}
	b.Reset()
	if err := d.Decode(wire.Bytes(), b); err != nil {
		return false, nil
	}
	if b.EndHeader(h.last); b.Malformed != "" {
		return false, nil
	}
	s := &stream{request: r}
	return true, s.check(b, h.last)
}

// An accepted header keeps the stream's fields with their order and values, except Host in front
// and Cookie at the end. Target and authority are the same, and there is no framing of HTTP/1.
func checkSame(t *testing.T, r *request, h *streamHeader) {
	t.Helper()
	if r.ssp.Method.String() != h.method {
		t.Errorf("method %s became %s", h.method, r.ssp.Method)
	}
	target := string(r.fields.Path)
	if len(r.fields.Query) > 0 || strings.HasSuffix(h.target, "?") && !strings.Contains(target, "?") {
		target += "?" + string(r.fields.Query)
	}
	if target != h.target {
		t.Errorf("target %q became %q", h.target, target)
	}
	want := [][2]string{}
	host, cookies := h.host, []string{}
	for _, f := range h.fields {
		switch {
		case f[0] == "host" && h.host != "": // the two are the same
		case f[0] == "host":
			host = f[1]
			want = append(want, [2]string{"Host", f[1]})
		case f[0] == "cookie":
			cookies = append(cookies, f[1])
		default:
			want = append(want, [2]string{http.CanonicalHeaderKey(f[0]), f[1]})
		}
	}
	if h.host != "" {
		want = slices.Insert(want, 0, [2]string{"Host", h.host})
	}
	if joined := strings.Join(cookies, "; "); joined != "" {
		want = append(want, [2]string{"Cookie", joined})
	}
	if string(r.fields.Host()) != host {
		t.Errorf("authority %q became %q", host, r.fields.Host())
	}
	got := [][2]string{}
	for _, f := range r.fields.Fields() {
		got = append(got, [2]string{string(f.Name), string(f.Value)})
	}
	if !slices.Equal(got, want) {
		t.Errorf("fields %q became %q", want, got)
	}
	if r.fields.Chunked() || r.fields.HTTP10 {
		t.Error("the head says how it is framed in HTTP/1")
	}
}

// reset is the status of a stream that was reset.
const reset = -1

func newStreamRequest() *request {
	return &request{configVersion: &configVersion{opts: Options{MaxHeaderBytes: 4096, ErrorDetail: true}}}
}

func FuzzStreamHead(f *testing.F) {
	for _, seed := range []struct {
		method, target, host, fields string
		body                         bool
	}{
		{"GET", "/fill?a=b&c", "a.example:443", "accept\x1f*/*\x1ex-forwarded-for\x1f1.2.3.4\x1ex-forwarded-for\x1f5.6.7.8", false},
		{"POST", "/", "a", "content-length\x1f4\x1econtent-type\x1fapplication/json\x1ecookie\x1fa=b; c=d", true},
		{"POST", "/", "a", "content-length\x1f4\x1econtent-length\x1f5", true},
		{"POST", "/", "a", "transfer-encoding\x1fchunked", true},
		{"GET", "/", "a\r\nX: y", "x\x1fy\r\n\r\nGET / HTTP/1.1\r\nHost: b", false},
		{"GET", "/ HTTP/1.1\r\nX: y", "a", "A: b\r\nC\x1fd\x1ehost\x1fb", false},
		{"HEAD", "/?", "", "x-lower\x1f\tv \x1e\x1fempty", false},
	} {
		f.Add(seed.method, seed.target, seed.host, seed.fields, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, target, host, fields string, bodyOpen bool) {
		h := newStreamHeader(method, target, host, fields, bodyOpen)
		r := newStreamRequest()
		for range 2 { // the second must not see the state of the first
			switch taken, f := h.check(t, r); {
			case !taken:
			case f == nil:
				checkSame(t, r, h)
			case f.Outcome != upstream.BadRequest && f.Outcome != upstream.TooLarge && f.Outcome != upstream.MethodNotAllowed:
				t.Errorf("refused with %v", f.Outcome)
			}
		}
	})
}

func TestStreamHeadsAreTakenAsTheyAreOrRefused(t *testing.T) {
	for _, row := range []struct {
		name, method, target, host, fields string
		bodyOpen                           bool
		status                             int // 0 = accepted
	}{
		{"plain", "GET", "/fill?a=b", "a:443", "accept\x1f*/*\x1eaccept\x1ftext/html", false, 0},
		{"a body of known length", "POST", "/", "a", "content-length\x1f4", true, 0},
		{"a body of unknown length", "POST", "/", "a", "x\x1fy", true, 0},
		{"no fields", "HEAD", "/?", "a", "", false, 0},
		{"empty value", "GET", "/", "a", "x-empty\x1f", false, 0},
		{"bytes above ASCII", "GET", "/\xff", "a", "x\x1f\xff\xfe", false, 0},
		{"TAB within", "GET", "/", "a", "x\x1fa\tb", false, 0},
		{"CRLF in a value", "GET", "/", "a", "x\x1fa\r\nY: b", false, reset},
		{"CRLF in a name", "GET", "/", "a", "X: a\r\nY\x1fb", false, reset},
		{"CRLF in the authority", "GET", "/", "a\r\nY: b", "", false, reset},
		{"CRLF in the path", "GET", "/\r\nY: b", "a", "", false, reset},
		{"blank in the path", "GET", "/ HTTP/1.1", "a", "", false, 400},
		{"fragment", "GET", "/#a", "a", "", false, 400},
		{"absolute", "GET", "http://b/", "a", "", false, 400},
		{"empty path", "GET", "", "a", "", false, reset},
		{"NUL", "GET", "/", "a", "x\x1fa\x00b", false, reset},
		{"DEL", "GET", "/", "a", "x\x1fa\x7fb", false, reset},
		{"blank at the end", "GET", "/", "a", "x\x1fa ", false, reset},
		{"colon in a name", "GET", "/", "a", "X:Y\x1fa", false, reset},
		{"blank in a name", "GET", "/", "a", "X Y\x1fa", false, reset},
		{"empty name", "GET", "/", "a", "\x1fa", false, reset},
		{"the same host among the fields", "GET", "/", "a", "host\x1fa", false, 0},
		{"host among the fields", "GET", "/", "a", "host\x1fb", false, reset},
		{"no authority", "GET", "/", "", "", false, 400},
		{"Connection", "GET", "/", "a", "connection\x1fX", false, reset},
		{"Keep-Alive", "GET", "/", "a", "keep-alive\x1ftimeout=5", false, reset},
		{"Upgrade", "GET", "/", "a", "upgrade\x1fh2c", false, reset},
		{"Proxy-Connection", "GET", "/", "a", "proxy-connection\x1fclose", false, reset},
		{"Transfer-Encoding", "POST", "/", "a", "transfer-encoding\x1fchunked", true, reset},
		{"transfer-encoding", "POST", "/", "a", "transfer-encoding\x1fidentity", true, reset},
		{"a length without a body", "POST", "/", "a", "content-length\x1f4", false, reset},
		{"two lengths", "POST", "/", "a", "content-length\x1f4\x1econtent-length\x1f4", true, reset},
		{"CONNECT", "CONNECT", "/", "a", "", false, reset},
		{"another method", "DELETE", "/", "a", "", false, 405},
		{"too long", "GET", "/", "a", "x\x1f" + strings.Repeat("x", 4096), false, 431},
		{"too many fields", "GET", "/", "a", strings.Repeat("x\x1fy\x1e", 130), false, 431},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := newStreamHeader(row.method, row.target, row.host, row.fields, row.bodyOpen)
			r := newStreamRequest()
			taken, f := h.check(t, r)
			switch {
			case !taken:
				if row.status != reset {
					t.Fatal("the stream was reset")
				}
				return
			case f == nil:
				if row.status != 0 {
					t.Fatal("it was taken")
				}
				checkSame(t, r, h)
				return
			}
			status := f.Status
			if status == 0 {
				status = f.Outcome.Row().Status
			}
			if status != row.status {
				t.Errorf("refused with %d: %s, want %d", status, f.Detail, row.status)
			}
		})
	}
}
