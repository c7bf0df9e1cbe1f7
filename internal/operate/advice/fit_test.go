package advice

import (
	"testing"
	"time"

	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// 100/s × 100 ms use 10 places. With at most 3 % waiting, 18 are needed: 18 connections, three of 8 requests each, or five
// of HTTP/2, which opens another connection when 4 of 8 streams are in use.
func TestFitsOfPools(t *testing.T) {
	for _, c := range []struct {
		protocol exchange.Protocol
		conns    int
		want     Fit
	}{
		{exchange.HTTP1, 18, Fit{10, 18, false, ""}},
		{exchange.HTTP1, 17, Fit{10, 17, false, "raise pool.max_conns to 18"}},
		{exchange.HTTP1, 10, Fit{10, 10, true, "raise pool.max_conns to 18"}},
		{exchange.HTTP1Pipelined, 1, Fit{10, 8, true, "raise pool.max_conns to 3"}},
		{exchange.HTTP2, 1, Fit{10, 8, true, "raise pool.max_http2_conns to 5"}},
	} {
		o := &pool.Options{MaxConns: c.conns, MaxHTTP2Conns: min(c.conns, 4), MaxStreams: 8, PipelineDepth: 8}
		if got := FitOf(100, 100*time.Millisecond, c.protocol, o); *got != c.want {
			t.Errorf("%v with %d connections: %+v, want %+v", c.protocol, c.conns, *got, c.want)
		}
	}
	one := FitOf(100, 200*time.Microsecond, exchange.HTTP1, &pool.Options{MaxConns: 1})
	testsupport.True(t, *one == Fit{1, 1, false, ""}, "a place for 0.02 requests: %+v", *one)
}
