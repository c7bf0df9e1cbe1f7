//go:build !race

// These SSPs send megabytes in the smallest frames, which take seconds under the race detector.

package probe

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestAHostileSSPGetsOneBoundedExchange(t *testing.T) {
	t.Parallel()
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for name, c := range map[string]struct {
		http1, http2, repeat string // what it sends at first, and then again and again
		pause, timeout       time.Duration
		want                 string
	}{
		"a header that drips":    {http1: "HTTP/1.1 200 OK\r\nX-A: ", repeat: "a", pause: time.Millisecond, timeout: time.Second, want: "i/o timeout"},
		"a body that drips":      {http1: "HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", repeat: "a", pause: time.Millisecond, timeout: time.Second, want: "i/o timeout"},
		"a header without end":   {http1: "HTTP/1.1 200 OK\r\n", repeat: "X-A: " + strings.Repeat("a", 1000) + "\r\n", want: "more than 1310720 bytes"},
		"responses 1xx":          {http1: "HTTP/1.1 ", repeat: "103 Early Hints\r\n\r\nHTTP/1.1 ", want: "more than 1310720 bytes"},
		"chunks of one byte":     {http1: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", repeat: "1;" + strings.Repeat("e", 1000) + "\r\na\r\n", want: "HTTP/1.1: "},
		"a long malformed field": {http1: "HTTP/1.1 200 OK\r\n" + strings.Repeat("a", 100_000) + "\r\n\r\n", want: "malformed MIME header"},
		"SETTINGS":               {http2: settings, repeat: settings, want: "more than 1310720 bytes"},
		"PING":                   {http2: settings, repeat: "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", want: "more than 1310720 bytes"},
		"CONTINUATION":           {http2: settings + "\x00\x00\x00\x01\x00\x00\x00\x00\x01", repeat: "\x00\x00\x00\x09\x00\x00\x00\x00\x01", want: "more than 1310720 bytes"},
		"a frame of 16 MB":       {http2: settings + "\xff\xff\xff\x00\x00\x00\x00\x00\x01", repeat: strings.Repeat("a", 1000), want: "frame too large"},
		"frames of another kind": {http2: settings, repeat: "\x00\x00\x01\x2a\x00\x00\x00\x00\x00a", want: "more than 1310720 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun atomic.Int64
			url := hostileSSP(t, func(conn net.Conn, isHTTP2 bool) {
				text := c.http1
				if isHTTP2 {
					text = c.http2
				}
				if text == "" {
					return
				}
				begun.Add(1)
				again := c.repeat
				if c.pause == 0 {
					again = strings.Repeat(again, 100)
				}
				for _, err := io.WriteString(conn, text); err == nil; time.Sleep(c.pause) {
					_, err = io.WriteString(conn, again)
				}
			})
			o := options(url, nil)
			if c.timeout > 0 {
				o.Timeout = c.timeout
			}
			_, err := Run(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("%.2000q, want %q", err, c.want)
			}
			testsupport.Equal(t, begun.Load(), 1, "%d exchanges began")
		})
	}
}
