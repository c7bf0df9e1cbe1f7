package http1

import (
	"testing"

	"adbuffer/internal/testsupport"
	"adbuffer/internal/upstream"
)

// A connection may close at the moment of its acquisition, after it has carried a request.
// Exchange.Reused reports the reuse although the request was not sent.
func TestRequestOnAClosedReusedPipelineReportsReused(t *testing.T) {
	used, p, owner := dialPipelined(t, plain, testOptions(), nil)
	prove(t, used, p, owner)
	fresh, _, _ := dialPipelined(t, plain, testOptions(), nil)
	for conn, kept := range map[*Pipelined]bool{used: true, fresh: false} {
		conn.Close(upstream.ClosedDrain)
		late := get(t, "late")
		wantError(t, conn.Do(late), upstream.ConnLost, upstream.NotSent, false)
		testsupport.Equal(t, late.Reused, kept, "reused is %t")
	}
}

// The requests on a pipeline share the count of responses that it has carried.
func TestServedIsSharedByTheRequestsOnAPipeline(t *testing.T) {
	conn, p, owner := dialPipelined(t, plain, testOptions(), nil)
	prove(t, conn, p, owner)
	for n := 1; n < 7; n++ {
		ex := get(t, "warm")
		done := start(conn, ex)
		p.wantRequests("warm")
		p.send(textResponse("warm"))
		wantResponse(t, wait(t, done), ex, 200, "warm")
		testsupport.Equal(t, ex.Served, n, "served %d")
	}
	a, b := get(t, "a"), get(t, "b")
	doneA := start(conn, a)
	p.wantRequests("a")
	doneB := start(conn, b)
	p.wantRequests("b")
	p.send(textResponse("a") + textResponse("b"))
	wantResponse(t, wait(t, doneA), a, 200, "a")
	wantResponse(t, wait(t, doneB), b, 200, "b")
	testsupport.True(t, a.Served == 7 && b.Served == 3, "served %d and %d, want 7 and 3", a.Served, b.Served)
}
