package http1

import (
	"testing"

	"adbuffer/internal/upstream"
)

// A connection that closes at the moment of being acquired may have carried a request before.
// Exchange.Reused reports it although the request was not sent.
func TestRequestOnAClosedReusedPipelineReportsReused(t *testing.T) {
	used, p, owner := dialPipelined(t, plain, testOptions(), nil)
	prove(t, used, p, owner)
	fresh, _, _ := dialPipelined(t, plain, testOptions(), nil)
	for conn, kept := range map[*Pipelined]bool{used: true, fresh: false} {
		conn.Close(upstream.ClosedDrain)
		late := get(t, "late")
		wantError(t, conn.Do(late), upstream.ConnLost, upstream.NotSent, false)
		if late.Reused != kept {
			t.Errorf("reused is %t, want %t", late.Reused, kept)
		}
	}
}
