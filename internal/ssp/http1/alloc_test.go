//go:build !race

package http1

import (
	"testing"

	"adbuffer/internal/wire/exchange"
)

// adbuffer's own code allocates nothing for an exchange. crypto/tls allocates once for each record
// that it reads.
func TestExchangeAllocatesNothingOfOurs(t *testing.T) {
	for _, tr := range transports {
		for _, k := range kinds {
			c, sock, p := connect(t, tr)
			conn := k.open(c, sock, &countingOwner{}, testOptions())
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
				t.Errorf("%v, %s: %.2f allocations an exchange, want at most %.0f", tr, k, got, ceiling)
			}
			conn.Close(exchange.ClosedDrain)
		}
	}
}
