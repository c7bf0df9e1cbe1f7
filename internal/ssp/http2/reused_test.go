package http2

import (
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// A connection may close at the moment of its acquisition, after it carried other requests.
// Exchange.Reused reports the reuse although the request was not sent.
func TestRequestOnAClosedReusedConnectionReportsReused(t *testing.T) {
	p := connect(t, testOptions())
	fresh := connect(t, testOptions())
	p.exchange(get("/"), "ok")
	for conn, kept := range map[*Conn]bool{p.conn: true, fresh.conn: false} {
		conn.Close(exchange.ClosedDrain)
		late := get("/late").do(conn)
		late.wantError(t, want{outcome: exchange.ConnLost, progress: exchange.NotSent, detail: "closed"})
		testsupport.Equal(t, late.reused, kept, "reused is %t")
	}
}
