package forwarding

import (
	"bytes"
	"compress/gzip"
	"io"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/e2e"
)

func TestRewriteTmaxWritesTheTimeLeftAndTouchesNoOtherByte(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "rewrite_tmax: true"))
	before := strings.Replace(e2e.BidRequest(), `"tmax":3000`, `"tmax":20000`, 1)
	ab.Post("/fillbuffer", before, "X-Adbuffer-Timeout-Ms: 10000").WantFill("openx")
	got := e2e.LastRequest(t, s)
	head, tail, _ := strings.Cut(before, "20000")
	body := string(got.Body)
	if !strings.HasPrefix(body, head) || !strings.HasSuffix(body, tail) {
		t.Fatalf("the body was changed elsewhere:\n%s\nwant\n%s", body, before)
	}
	left, err := strconv.Atoi(body[len(head) : len(body)-len(tail)])
	if err != nil || left > 9995 || left < 1000 {
		t.Errorf("tmax %d (%v), want the rest of 9995 ms", left, err)
	}
	if got.Get("Content-Length") != strconv.Itoa(len(body)) {
		t.Errorf("Content-Length %s for %d bytes", got.Get("Content-Length"), len(body))
	}
	for _, untouched := range []string{`{"id":"1"}`, `{"a":{"tmax":500}}`, `[1]`, `no json`} {
		ab.Post("/fillbuffer", untouched).WantFill("openx")
		if got := e2e.LastRequest(t, s); string(got.Body) != untouched {
			t.Errorf("the body %s became %s", untouched, got.Body)
		}
	}
}

func TestGzipRequestCompressesLargeBodies(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL(), "gzip_request: {enabled: true, min_bytes: 1000}"))
	body := e2e.BidRequest()
	ab.Post("/fillbuffer", body, "Content-Type: application/json").WantFill("openx")
	got := e2e.LastRequest(t, s)
	if got.Get("Content-Encoding") != "gzip" || len(got.Body) >= len(body) {
		t.Fatalf("the SSP got %d bytes with %v", len(got.Body), got.Header)
	}
	z, err := gzip.NewReader(bytes.NewReader(got.Body))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := io.ReadAll(z); err != nil || string(plain) != body {
		t.Errorf("unpacked, the body is %s (%v)", plain, err)
	}
	for _, row := range []struct{ body, field string }{
		{body[:999], "Content-Type: application/json"},
		{body, "Content-Encoding: br"}, // it is compressed already
	} {
		ab.Post("/fillbuffer", row.body, row.field).WantFill("openx")
		if got := e2e.LastRequest(t, s); string(got.Body) != row.body || got.Get("Content-Encoding") == "gzip" {
			t.Errorf("a body of %d bytes with %s was compressed", len(row.body), row.field)
		}
	}
}
