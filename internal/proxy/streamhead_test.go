package proxy

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/upstream"
)

// streamRequest is a request as the server of HTTP/2 hands it over. fields are
// lines of "name:value", with any bytes, also those that it would refuse.
func streamRequest(method, target, host, fields string, bodyOpen bool) *http.Request {
	req := &http.Request{Method: method, RequestURI: target, Host: host, Header: make(http.Header), Body: io.NopCloser(strings.NewReader("body"))}
	for f := range strings.SplitSeq(fields, "\x1e") {
		if name, value, ok := strings.Cut(f, "\x1f"); ok {
			req.Header[name] = append(req.Header[name], value)
		}
	}
	if bodyOpen {
		req.ContentLength = -1
		if v := req.Header["Content-Length"]; len(v) > 0 {
			req.ContentLength, _ = strconv.ParseInt(v[0], 10, 63)
		}
	}
	return req
}

// What is taken reads exactly as the stream said it: the same fields with the
// same values, those of one name in their order, the same target and authority,
// and no framing of HTTP/1.
func checkSame(t *testing.T, r *request, req *http.Request) {
	t.Helper()
	if r.ssp.Method.String() != req.Method {
		t.Errorf("method %s became %s", req.Method, r.ssp.Method)
	}
	target := string(r.lookup.Path)
	if len(r.lookup.Query) > 0 || strings.HasSuffix(req.RequestURI, "?") && !strings.Contains(target, "?") {
		target += "?" + string(r.lookup.Query)
	}
	if target != req.RequestURI {
		t.Errorf("target %q became %q", req.RequestURI, target)
	}
	if string(r.lookup.Host) != req.Host {
		t.Errorf("authority %q became %q", req.Host, r.lookup.Host)
	}
	got := make(http.Header)
	for i, f := range r.fields.Fields() {
		if i == 0 {
			if string(f.Name) != "Host" || string(f.Value) != req.Host {
				t.Errorf("the first field is %s: %s, want Host", f.Name, f.Value)
			}
			continue
		}
		got[string(f.Name)] = append(got[string(f.Name)], string(f.Value))
	}
	if len(got) != len(req.Header) {
		t.Errorf("fields %q became %q", req.Header, got)
	}
	for name, values := range req.Header {
		if !slices.Equal(values, got[name]) {
			t.Errorf("%q: %q became %q", name, values, got[name])
		}
	}
	if r.fields.Chunked() || r.fields.HTTP10 {
		t.Error("the head says how it is framed in HTTP/1")
	}
	if (r.source != nil) != (req.ContentLength != 0) {
		t.Errorf("a body of %d is read: %v", req.ContentLength, r.source != nil)
	}
}

func newStreamRequest() *request {
	return &request{generation: &generation{opts: Options{MaxHeaderBytes: 4096, ErrorDetail: true}}}
}

func FuzzStreamHead(f *testing.F) {
	for _, seed := range []struct {
		method, target, host, fields string
		body                         bool
	}{
		{"GET", "/fill?a=b&c", "a.example:443", "Accept\x1f*/*\x1eX-Forwarded-For\x1f1.2.3.4\x1eX-Forwarded-For\x1f5.6.7.8", false},
		{"POST", "/", "a", "Content-Length\x1f4\x1eContent-Type\x1fapplication/json\x1eCookie\x1fa=b; c=d", true},
		{"POST", "/", "a", "Content-Length\x1f4\x1eContent-Length\x1f5", true},
		{"POST", "/", "a", "Transfer-Encoding\x1fchunked", true},
		{"GET", "/", "a\r\nX: y", "X\x1fy\r\n\r\nGET / HTTP/1.1\r\nHost: b", false},
		{"GET", "/ HTTP/1.1\r\nX: y", "a", "A: b\r\nC\x1fd\x1eHost\x1fb", false},
		{"HEAD", "/?", "", "x-lower\x1f\tv \x1e\x1fempty", false},
	} {
		f.Add(seed.method, seed.target, seed.host, seed.fields, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, target, host, fields string, bodyOpen bool) {
		req := streamRequest(method, target, host, fields, bodyOpen)
		r := newStreamRequest()
		for range 2 { // what the first leaves behind is not the second's
			switch f := r.checkStream(req); {
			case f == nil:
				checkSame(t, r, req)
			case f.outcome != upstream.BadRequest && f.outcome != upstream.TooLarge && f.outcome != upstream.MethodNotAllowed:
				t.Errorf("refused with %v", f.outcome)
			}
		}
	})
}

func TestStreamHeadsAreTakenAsTheyAreOrRefused(t *testing.T) {
	for _, row := range []struct {
		name, method, target, host, fields string
		bodyOpen                           bool
		status                             int // 0 = taken
	}{
		{"plain", "GET", "/fill?a=b", "a:443", "Accept\x1f*/*\x1eAccept\x1ftext/html", false, 0},
		{"a body of known length", "POST", "/", "a", "Content-Length\x1f4", true, 0},
		{"a body of unknown length", "POST", "/", "a", "X\x1fy", true, 0},
		{"no fields", "HEAD", "/?", "a", "", false, 0},
		{"empty value", "GET", "/", "a", "X-Empty\x1f", false, 0},
		{"bytes above ASCII", "GET", "/\xff", "a", "X\x1f\xff\xfe", false, 0},
		{"TAB within", "GET", "/", "a", "X\x1fa\tb", false, 0},
		{"CRLF in a value", "GET", "/", "a", "X\x1fa\r\nY: b", false, 400},
		{"CRLF in a name", "GET", "/", "a", "X: a\r\nY\x1fb", false, 400},
		{"CRLF in the authority", "GET", "/", "a\r\nY: b", "", false, 400},
		{"CRLF in the path", "GET", "/\r\nY: b", "a", "", false, 400},
		{"blank in the path", "GET", "/ HTTP/1.1", "a", "", false, 400},
		{"fragment", "GET", "/#a", "a", "", false, 400},
		{"absolute", "GET", "http://b/", "a", "", false, 400},
		{"empty path", "GET", "", "a", "", false, 400},
		{"NUL", "GET", "/", "a", "X\x1fa\x00b", false, 400},
		{"DEL", "GET", "/", "a", "X\x1fa\x7fb", false, 400},
		{"blank at the end", "GET", "/", "a", "X\x1fa ", false, 400},
		{"colon in a name", "GET", "/", "a", "X:Y\x1fa", false, 400},
		{"blank in a name", "GET", "/", "a", "X Y\x1fa", false, 400},
		{"empty name", "GET", "/", "a", "\x1fa", false, 400},
		{"Host among the fields", "GET", "/", "a", "Host\x1fa", false, 400},
		{"host among the fields", "GET", "/", "a", "host\x1fb", false, 400},
		{"no authority", "GET", "/", "", "", false, 400},
		{"Connection", "GET", "/", "a", "Connection\x1fX", false, 400},
		{"Keep-Alive", "GET", "/", "a", "Keep-Alive\x1ftimeout=5", false, 400},
		{"Upgrade", "GET", "/", "a", "Upgrade\x1fh2c", false, 400},
		{"Proxy-Connection", "GET", "/", "a", "Proxy-Connection\x1fclose", false, 400},
		{"Transfer-Encoding", "POST", "/", "a", "Transfer-Encoding\x1fchunked", true, 400},
		{"transfer-encoding", "POST", "/", "a", "transfer-encoding\x1fidentity", true, 400},
		{"a length without a body", "POST", "/", "a", "Content-Length\x1f4", false, 400},
		{"two lengths", "POST", "/", "a", "Content-Length\x1f4\x1eContent-Length\x1f4", true, 400},
		{"CONNECT", "CONNECT", "/", "a", "", false, 400},
		{"another method", "DELETE", "/", "a", "", false, 405},
		{"too long", "GET", "/", "a", "X\x1f" + strings.Repeat("x", 4096), false, 431},
		{"too many fields", "GET", "/", "a", strings.Repeat("X\x1fy\x1e", 130), false, 431},
	} {
		t.Run(row.name, func(t *testing.T) {
			req := streamRequest(row.method, row.target, row.host, row.fields, row.bodyOpen)
			r := newStreamRequest()
			f := r.checkStream(req)
			if f == nil {
				if row.status != 0 {
					t.Fatal("it was taken")
				}
				checkSame(t, r, req)
				return
			}
			status := f.status
			if status == 0 {
				status = statuses[f.outcome]
			}
			if status != row.status {
				t.Errorf("refused with %d: %s, want %d", status, f.detail, row.status)
			}
		})
	}
}
