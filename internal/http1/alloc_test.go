//go:build !race

package http1

import (
	"testing"

	"adbuffer/internal/upstream"
)

// adbuffer's own code allocates nothing for an exchange. crypto/tls allocates once for each record
// that it reads.
func TestExchangeAllocatesNothingOfOurs(t *testing.T) {
	for _, tr := range transports {
		for _, pipelined := range []bool{false, true} {
			c, sock, p := connect(t, tr)
			var conn upstream.Conn
			if pipelined {
				conn = NewPipelined(c, sock, &countingOwner{}, testOptions())
			} else {
				conn = New(c, sock, &countingOwner{}, testOptions())
			}
			go stub(p.conn, benchResponse)
			ceiling := 0.0
			if tr == overTLS {
				ceiling = 2 // one of them is the peer's
			}
			ex := benchExchange()
			got := testing.AllocsPerRun(2000, func() {
				reset(ex)
				if err := conn.Do(ex); err != nil {
					t.Fatal(err)
				}
			})
			if got > ceiling {
				t.Errorf("%v, pipelined %v: %.2f allocations an exchange, want at most %.0f", tr, pipelined, got, ceiling)
			}
			conn.Close(upstream.ClosedDrain)
		}
	}
}
