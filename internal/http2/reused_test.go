package http2

import (
	"testing"

	"adbuffer/internal/upstream"
)

// A connection may close at the moment of its acquisition, after it carried other requests.
// Exchange.Reused reports the reuse although the request was not sent.
func TestRequestOnAClosedReusedConnectionReportsReused(t *testing.T) {
	p := connect(t, testOptions())
	fresh := connect(t, testOptions())
	done := p.start(get("/"))
	p.respond(p.request().StreamID, "ok")
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
