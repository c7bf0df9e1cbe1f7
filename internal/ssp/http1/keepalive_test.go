package http1

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// The shortest timeout that an SSP announces ends the idle time of its connection a tenth and at least
// half a second earlier. What is no timeout is ignored.
func TestKeepAliveLimitsTheIdleTime(t *testing.T) {
	const none = exchange.NoIdleLimit
	for _, c := range []struct {
		fields string
		want   time.Duration
	}{
		{"", none},
		{"Keep-Alive: timeout=5", 4500 * time.Millisecond},
		{"keep-alive: max=100, Timeout = 60", 54 * time.Second},
		{"Keep-Alive: timeout=1", 500 * time.Millisecond},
		{"Keep-Alive: timeout=0", -500 * time.Millisecond},
		{"Keep-Alive: timeout=5\r\nKeep-Alive: timeout=3", 2500 * time.Millisecond},
		{"Keep-Alive: timeout=3, timeout=5", 2500 * time.Millisecond},
		{"Keep-Alive: timeout=99999999999999999999999999", 966367641600 * time.Millisecond},
		{"Keep-Alive: timeout=-1", none},
		{"Keep-Alive: timeout=", none},
		{"Keep-Alive: timeout=5s, timeout=\"5\", timeout=0x5, timeout=1.5, timeouts=5, =5, timeout", none},
		{"Keep-Alive: ,,;,\t,max=0", none},
		{"Connection: timeout=5", none},
		{"X-Alive-It: timeout=5", none},
	} {
		for _, k := range []kind{exclusive, pipelined} {
			t.Run(fmt.Sprintf("%s/%v", c.fields, k), func(t *testing.T) {
				conn, p, rec := k.dial(t, plain, testOptions())
				testsupport.Equal(t, conn.IdleLimit(), none, "a new connection has the limit %v")
				fields := c.fields
				if fields != "" {
					fields += "\r\n"
				}
				_, done := ask(t, conn, p)
				// The fields of an interim response announce nothing.
				p.send("HTTP/1.1 103 Early Hints\r\nKeep-Alive: timeout=2\r\n\r\nHTTP/1.1 200 OK\r\n" + fields + "Content-Length: 2\r\n\r\nok")
				testsupport.NoError(t, wait(t, done))
				rec.awaitFreed(t, 1)
				testsupport.Equal(t, conn.IdleLimit(), c.want, "the limit is %v")
				_, done = ask(t, conn, p)
				p.send("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=70\r\nContent-Length: 2\r\n\r\nok")
				testsupport.NoError(t, wait(t, done))
				rec.awaitFreed(t, 2)
				testsupport.Equal(t, conn.IdleLimit(), min(c.want, 63*time.Second), "after another response the limit is %v")
			})
		}
	}
}
