//go:build !race

package http2

import (
	"net"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// TestExchangeAllocatesNothing counts only adbuffer's allocations: the peer is a loop over prepared
// bytes.
func TestExchangeAllocatesNothing(t *testing.T) {
	client, server := loopback(t)
	defer server.Close()
	conn, _ := open(t, client, testOptions())
	go responsePrepared(server)
	for range 200 { // fill pools and tables
		testsupport.NoError(t, exchangeAd(conn))
	}
	n := testing.AllocsPerRun(2000, func() { testsupport.NoError(t, exchangeAd(conn)) })
	testsupport.True(t, n < 1, "%v allocations an exchange, want none", n)
}

// responsePrepared responds to each request of c with responseFrames, and allocates
// nothing.
func responsePrepared(c net.Conn) {
	buf := make([]byte, 64<<10)
	out := http2codec.AppendFrameHeader(nil, 0, h2.FrameSettings, 0, 0)
	if _, err := c.Write(out); err != nil {
		return
	}
	response := responseFrames()
	_, first, _ := http2codec.ParseFrame(response)
	skip := len(h2.ClientPreface)
	used := 0
	for {
		n, err := c.Read(buf[used:])
		if err != nil {
			return
		}
		used += n
		at := skip
		if used < at {
			continue
		}
		skip = 0
		out = out[:0]
		for {
			f, n, _ := http2codec.ParseFrame(buf[at:used])
			if n == 0 {
				break
			}
			at += n
			if f.Kind == h2.FrameHeaders {
				start := len(out)
				out = append(out, response...)
				http2codec.AppendFrameHeader(out[:start], first-http2codec.FrameHeaderLen, h2.FrameHeaders, h2.FlagHeadersEndHeaders, f.ID)
				http2codec.AppendFrameHeader(out[:start+first], len(response)-first-http2codec.FrameHeaderLen, h2.FrameData, h2.FlagDataEndStream, f.ID)
			}
		}
		used = copy(buf, buf[at:used])
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}
}
