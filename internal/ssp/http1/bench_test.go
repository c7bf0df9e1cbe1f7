package http1

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// stub sends the same bytes for each request on c. It responds at once to all requests that it has
// read. It does little work, since that work is part of the measurement.
func stub(c net.Conn, response string) {
	in := make([]byte, 256<<10)
	out := []byte(strings.Repeat(response, 256))
	end := []byte("\r\n\r\n")
	held := 0
	for {
		n, err := c.Read(in[held:])
		if err != nil {
			return
		}
		b := in[:held+n]
		count := 0
		for {
			i := bytes.Index(b, end)
			if i < 0 {
				break
			}
			b = b[i+len(end):]
			count++
		}
		held = copy(in, b)
		if _, err := c.Write(out[:count*len(response)]); err != nil {
			return
		}
	}
}

// benchResponse is a typical response of an SSP: 1 KB of JSON.
var benchResponse = "HTTP/1.1 200 OK\r\nServer: stub\r\nDate: Fri, 20 Nov 2026 10:00:00 GMT\r\n" +
	"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"" + strings.Repeat("x", 996) + "\"}"

// benchExchange returns an ad request of about 800 bytes.
func benchExchange() *exchange.Exchange {
	ex := exchange.AcquireExchange()
	ex.Request = exchange.Request{
		Method: exchange.GET, Scheme: "http", Authority: []byte("ssp.example"),
		Target: []byte("/bid?" + strings.Repeat("k=value&", 37)),
		Fields: []byte("User-Agent: Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148\r\n" +
			"Accept: */*\r\nAccept-Language: en-US,en;q=0.9\r\nAccept-Encoding: gzip, deflate, br\r\n" +
			"Referer: https://publisher.example/news/article-12345\r\nX-Forwarded-For: 203.0.113.77, 10.0.0.1\r\n"),
	}
	return ex
}

// reset prepares ex for another use, as its next acquisition would.
func reset(ex *exchange.Exchange) {
	ex.ReleaseBody()
	ex.Response.Reset()
	ex.Times = exchange.Times{Acquired: time.Now()}
	ex.Deadline = ex.Times.Acquired.Add(time.Second)
}

type countingOwner struct{ freed atomic.Int64 }

func (o *countingOwner) Freed(time.Duration, exchange.Ticket) { o.freed.Add(1) }
func (o *countingOwner) Changed()                             {}

// run measures b.N exchanges by callers goroutines, including the peer's work.
func run(b *testing.B, callers int, conn func(caller int) exchange.Conn) {
	b.ReportAllocs()
	b.ResetTimer()
	before := testsupport.CPUTime(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			c, ex := conn(i), benchExchange()
			for left.Add(-1) >= 0 {
				reset(ex)
				if err := c.Do(ex); err != nil {
					b.Error(err)
					return
				}
				if len(ex.Response.Body) != 1000 {
					b.Errorf("body of %d bytes", len(ex.Response.Body))
				}
			}
			ex.Release()
		})
	}
	wg.Wait()
	b.ReportMetric(float64(testsupport.CPUTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkPipelined measures an exchange of 64 callers, or of a single one, that share a few
// connections.
func BenchmarkPipelined(b *testing.B) {
	for _, tr := range transports {
		for _, load := range []struct{ callers, conns int }{{1, 1}, {64, 1}, {64, 2}, {64, 8}} {
			callers, conns := load.callers, load.conns
			b.Run(fmt.Sprintf("%v/callers=%d/conns=%d", tr, callers, conns), func(b *testing.B) {
				opts := testOptions()
				opts.Depth = callers / conns
				var pool []*Pipelined
				for range conns {
					c, sock, p := connect(b, tr)
					go stub(p.conn, benchResponse)
					pool = append(pool, NewPipelined(c, sock, &countingOwner{}, opts))
				}
				run(b, callers, func(i int) exchange.Conn { return pool[i%conns] })
				for _, c := range pool {
					c.Close(exchange.ClosedDrain)
				}
			})
		}
	}
}
