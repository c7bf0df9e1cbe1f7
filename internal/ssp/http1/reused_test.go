package http1

import (
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// A connection may close at the moment of its acquisition, after it has carried a request.
// Exchange.Reused reports the reuse although the request was not sent.
func TestRequestOnAClosedReusedPipelineReportsReused(t *testing.T) {
	used, _, _ := dialProven(t, plain, testOptions())
	fresh, _, _ := dialPipelined(t, plain, testOptions(), nil)
	for conn, kept := range map[*Pipelined]bool{used: true, fresh: false} {
		conn.Close(exchange.ClosedDrain)
		late := get(t, "late")
		wantError(t, conn.Do(late), exchange.ConnLost, exchange.NotSent, false)
		testsupport.Equal(t, late.Reused, kept, "reused is %t")
	}
}

// The requests on a pipeline share the count of responses that it has carried.
func TestServedIsSharedByTheRequestsOnAPipeline(t *testing.T) {
	conn, p, _ := dialProven(t, plain, testOptions())
	for n := 1; n < 7; n++ {
		testsupport.Equal(t, exchangeOnce(t, conn, p, "warm").Served, n, "served %d")
	}
	f := send(t, conn, p, "a", "b")
	p.send(textResponse("a") + textResponse("b"))
	f.wantResponse(0, "a")
	f.wantResponse(1, "b")
	testsupport.True(t, f.ex[0].Served == 7 && f.ex[1].Served == 3, "served %d and %d, want 7 and 3", f.ex[0].Served, f.ex[1].Served)
}
