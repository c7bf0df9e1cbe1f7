package http2codec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/net/http2/hpack"
)

// A peer reads each response correctly over a long connection. During the test the encoder forgets
// its table, and the peer changes the size of its own table.
func TestResponsesAreUnderstoodByTheLibrary(t *testing.T) {
	enc := NewResponseEncoder()
	peer := hpack.NewDecoder(MaxTableSize, nil)
	for i := range 1000 {
		code := 200 + i%400
		lines := "Content-Type: application/json\r\nDate: " + strconv.Itoa(i/50) + "\r\nContent-Length: " + strconv.Itoa(i%7) + "\r\nX-Unique: " + strconv.Itoa(i) +
			"\r\nSet-Cookie: a=b\r\nConnection: close\r\nX-Long-" + strconv.Itoa(i%60) + ": " + strings.Repeat("v", 100) + "\r\n"
		want := []string{":status: " + strconv.Itoa(code), "content-type: application/json", "date: " + strconv.Itoa(i/50), "content-length: " + strconv.Itoa(i%7),
			"x-unique: " + strconv.Itoa(i), "set-cookie: a=b", "x-long-" + strconv.Itoa(i%60) + ": " + strings.Repeat("v", 100)}
		var block []byte
		var ok bool
		if i%10 == 9 {
			want = want[1:]
			block, ok = enc.AppendTrailers(nil, []byte(lines))
		} else {
			block, ok = enc.AppendResponse(nil, code, []byte(lines))
		}
		fields, err := peer.DecodeFull(block)
		testsupport.MustTrue(t, ok && err == nil, "response %d: %v %v", i, ok, err)
		var got []string
		for _, f := range fields {
			got = append(got, f.Name+": "+f.Value)
			testsupport.True(t, f.Name != "set-cookie" || f.Sensitive, "a cookie may be put into a table")
		}
		testsupport.MustTrue(t, slices.Equal(got, want), "response %d: got %q, want %q", i, got, want)
		switch {
		case i%97 == 0:
			enc.Forget()
		case i%151 == 0:
			size := uint32(i % 5 * 1000)
			peer.SetAllowedMaxDynamicTableSize(size)
			enc.setMax(size)
		}
	}
}

// adbuffer does not send a line that HTTP/2 cannot carry.
func TestMalformedResponsesAreNotSent(t *testing.T) {
	for _, lines := range []string{"no colon\r\n", ": no name\r\n", "A: b\nC: d\r\n", "A: \x00\r\n", "A B: c\r\n", "no end: x"} {
		enc := NewResponseEncoder()
		_, ok := enc.AppendResponse(nil, 200, []byte(lines))
		testsupport.True(t, !ok, "%q is sent", lines)
	}
}

// The header of a request is converted to HTTP/1.1's form.
func TestRequestsAreWrittenDown(t *testing.T) {
	decode := func(fields ...string) *RequestBlock {
		var wire []byte
		for i := 0; i < len(fields); i += 2 {
			wire = append(wire, 0)
			wire = appendString(appendString(wire, []byte(fields[i])), []byte(fields[i+1]))
		}
		d := NewDecoder()
		b := &RequestBlock{Limit: 4096}
		b.Reset()
		testsupport.NoError(t, d.Decode(wire, b))
		b.EndHeader(true)
		return b
	}
	get := []string{":method", "GET", ":scheme", "https", ":authority", "a.example", ":path", "/p?q"}
	for _, row := range []struct {
		fields []string
		want   string
	}{
		{nil, "Host: a.example\r\n\r\n"},
		{[]string{"accept-language", "de", "x-a", "1", "x-A", ""}, ""},
		{[]string{"cookie", "a=1", "te", "trailers", "cookie", "b=2", "dnt", "1"}, "Host: a.example\r\nTe: trailers\r\nDnt: 1\r\nCookie: a=1; b=2\r\n\r\n"},
		{[]string{"host", "a.example", "x-b", ""}, "Host: a.example\r\nX-B: \r\n\r\n"},
		{[]string{"host", "b.example"}, ""},
		{[]string{"te", "gzip"}, ""},
		{[]string{"connection", "x"}, ""},
		{[]string{"content-length", "1"}, ""},
	} {
		t.Run(fmt.Sprint(row.fields), func(t *testing.T) {
			b := decode(append(slices.Clone(get), row.fields...)...)
			if row.want == "" {
				testsupport.True(t, b.Malformed != "", "the block counts as well-formed")
				return
			}
			var memory []byte
			header, method, path := b.Take(&memory)
			testsupport.True(t, b.Malformed == "" && string(header) == row.want && string(method) == "GET" && string(path) == "/p?q", "%s %q %q %q", b.Malformed, method, path, header)
		})
	}
}
