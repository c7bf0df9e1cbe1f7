package exchange

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func wantUsed(t *testing.T, b *Budget, want int64) {
	t.Helper()
	testsupport.MustEqual(t, b.Used(), want, "%d bytes are reserved")
}

func TestResponseReservesBytesOfBothBudgetsOrOfNeither(t *testing.T) {
	for _, c := range []struct {
		share, budget int64
		names         string
	}{
		{100, 100, ""},
		{99, 100, "it needs 10 more bytes, and 90 of 99 are held for the SSP's requests and responses; see ssps[].max_buffered_bytes"},
		{100, 99, "it needs 10 more bytes, and 90 of 99 are held for all requests and responses; see server.max_buffered_bytes"},
	} {
		ex := AcquireExchange()
		ex.Share, ex.Budget = NewBudget(c.share), NewBudget(c.budget)
		share, budget := ex.Share, ex.Budget
		testsupport.NoError(t, ex.AppendBody(make([]byte, 90)))
		held, err := int64(100), ex.AppendBody(make([]byte, 10))
		if c.names != "" {
			held = 90
			e := AsError(err)
			testsupport.True(t, e.Outcome == Overloaded && e.Progress == MaybeProcessed && strings.Contains(e.Detail, c.names), "error %v, want one with %q", err, c.names)
		} else if err != nil {
			t.Error(err)
		}
		wantUsed(t, share, held)
		wantUsed(t, budget, held)
		testsupport.Equal(t, len(ex.Response.Body), int(held), "a body of %d bytes")
		ex.Release()
		wantUsed(t, share, 0)
		wantUsed(t, budget, 0)
	}
}

// With any claims of the SSP and any pieces of the body, the bytes reserved are the bytes that have
// arrived. The memory is at most twice that plus 4 KB, and at most what the SSP claims.
func TestMemoryForABodyFollowsTheBytesThatArrived(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for range 60 {
		ex := AcquireExchange()
		ex.Response.Body = nil
		ex.Budget = NewBudget(1 << 30)
		claim := r.IntN(1 << 20)
		if r.IntN(3) > 0 {
			ex.Response.ContentLength = claim
		}
		largest := 1 + r.IntN(1<<uint(r.IntN(17)))
		var want []byte
		for len(want) < claim && len(want) < 1+100*largest {
			n := min(1+r.IntN(largest), claim-len(want))
			p := make([]byte, n)
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			if r.IntN(2) == 0 {
				testsupport.NoError(t, ex.AppendBody(p))
			} else {
				room := ex.BodyRoom(claim - len(want))
				testsupport.MustTrue(t, len(room) != 0 && len(room) <= claim-len(want), "room for %d bytes, of %d that the SSP claims", len(room), claim-len(want))
				p = p[:copy(room, p)]
				testsupport.NoError(t, ex.TakeBody(len(p)))
			}
			want = append(want, p...)
			wantUsed(t, ex.Budget, int64(len(want)))
			c := cap(ex.Response.Body)
			testsupport.MustTrue(t, c <= 2*len(want)+4<<10 && (ex.Response.ContentLength < 0 || c <= claim), "memory of %d bytes for %d that have arrived, of %d", c, len(want), claim)
		}
		testsupport.MustTrue(t, slices.Equal(ex.Response.Body, want), "the body differs from the bytes that arrived")
		b := ex.Budget
		ex.Release()
		wantUsed(t, b, 0)
	}
}

// One huge request or response does not occupy memory for the requests after it.
func TestReleaseFreesLargeBuffers(t *testing.T) {
	ex := AcquireExchange()
	large := func() []byte { return make([]byte, 0, MaxKeptBuffer+1) }
	ex.Block, ex.Response.Body, ex.Response.Fields, ex.Response.Trailers = large(), large(), large(), large()
	ex.Release()
	r := &ex.Response
	testsupport.Equal(t, cap(ex.Block)+cap(r.Body)+cap(r.Fields)+cap(r.Trailers), 0, "%d bytes are kept")
}
