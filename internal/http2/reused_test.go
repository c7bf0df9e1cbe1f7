package http2

import (
	"testing"

	"adbuffer/internal/upstream"
)

// A place may be lent in the moment in which the connection closes. Whether that
// was a kept one decides how often the request may be sent again: under a server
// that closes every connection after 1 000 requests, a few in a hundred thousand
// failed when this was not said.
func TestRequestOnAClosedReusedConnectionReportsReused(t *testing.T) {
	p := connect(t, testOptions())
	fresh := connect(t, testOptions())
	done := p.start(get("/"))
	p.answer(p.request().StreamID, "ok")
	wait(t, done).wantBody(t, "ok")
	for conn, kept := range map[*Conn]bool{p.conn: true, fresh.conn: false} {
		conn.Close(upstream.ClosedDrain)
		late := get("/late").do(conn)
		late.wantError(t, want{outcome: upstream.ConnLost, progress: upstream.NotSent, detail: "closed"})
		if late.reused != kept {
			t.Errorf("reused is %t, want %t", late.reused, kept)
		}
	}
}
