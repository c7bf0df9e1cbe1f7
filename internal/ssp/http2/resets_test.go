package http2

import (
	"context"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"

	h2 "golang.org/x/net/http2"
)

// abandonOne starts an exchange and abandons it; it returns its stream after
// RST_STREAM was read.
func (p *peer) abandonOne() uint32 {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := get("/abandoned")
	r.ctx = ctx
	done, id := p.begin(r)
	cancel()
	testsupport.MustEqual[error](p.t, wait(p.t, done).err, exchange.ErrCancelled, "got %v")
	p.wantReset(id, h2.ErrCodeCancel)
	return id
}

// readPing returns the next PING that the connection sends by itself.
func (p *peer) readPing() [8]byte {
	p.t.Helper()
	for {
		if f := next[*h2.PingFrame](p); !f.IsAck() {
			return f.Data
		}
	}
}

func TestPlaceOfAnAbandonedExchangeIsKeptUntilThePeerHasReadTheReset(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingMaxConcurrentStreams, Val: 1})
	p.abandonOne()
	data := p.readPing()
	testsupport.MustEqual(t, p.owner.freed.Load(), 0, "%d places were freed before the PING was acknowledged")
	get("/").do(p.conn).wantError(t, notProcessed) // the only place is in use
	p.owner.awaitFreed(t)                          // the place of the abandoned exchange
	p.do(p.fr.WritePing(true, data))
	f := p.owner.awaitFreed(t)
	testsupport.True(t, f.held > 0 && f.held <= time.Hour && f.ticket == testTicket, "the place was held for %v, with the ticket %d", f.held, f.ticket)
	p.afterwards()
}

func TestOnePingCoversAllResetsBeforeIt(t *testing.T) {
	p := connect(t, testOptions())
	p.abandonOne()
	first := p.readPing()
	for range 3 {
		p.abandonOne()
	}
	p.exchange(get("/responded"), "ok") // now adbuffer may send another PING
	testsupport.MustEqual(t, p.owner.freed.Load(), 1, "%d places were freed, want only the place of the response")
	p.do(p.fr.WritePing(true, first))
	second := p.readPing() // the PING for the three resets
	testsupport.Eventually(t, "the first place is freed", func() bool { return p.owner.freed.Load() == 2 })
	p.do(p.fr.WritePing(true, second))
	testsupport.Eventually(t, "the others are freed", func() bool { return p.owner.freed.Load() == 5 })
}

func TestPingsDoNotOutnumberResponses(t *testing.T) {
	p := connect(t, testOptions())
	p.abandonOne()
	p.do(p.fr.WritePing(true, p.readPing()))
	p.owner.awaitFreed(t)
	// No response has arrived since the PING: a gRPC server would count another PING as a
	// violation. So places are free at once.
	for range 3 {
		p.abandonOne()
		p.owner.awaitFreed(t)
	}
	p.wantNoData() // reads all frames sent so far: a PING would come first
	done := p.start(get("/"))
	p.head(p.request().StreamID, true, ":status", "200")
	wait(t, done).wantBody(t, "")
	p.owner.awaitFreed(t)
	p.abandonOne()
	p.readPing()
}

func TestLateResponsesOfAbandonedExchangesAreDropped(t *testing.T) {
	p := connect(t, testOptions())
	neighbour, other := p.begin(get("/neighbour"))
	id := p.abandonOne()
	next := p.start(get("/next")) // may use the memory of the abandoned exchange
	third := p.request().StreamID
	p.head(id, false, ":status", "200", "x-late", "1")
	p.data(id, false, "late")
	p.head(id, true, "x-trailer", "1")
	p.do(p.fr.WriteRSTStream(id, h2.ErrCodeInternal))
	p.do(p.fr.WriteWindowUpdate(id, 5))
	p.respond(third, "third")
	p.respond(other, "neighbour")
	wait(t, next).wantBody(t, "third")
	wait(t, neighbour).wantBody(t, "neighbour")
}

func TestAbandonedPlacesAreFreedWhenTheConnectionCloses(t *testing.T) {
	p := connect(t, testOptions())
	for range 3 {
		p.abandonOne()
	}
	p.conn.Close(exchange.ClosedDrain)
	testsupport.Eventually(t, "all places are freed", func() bool { return p.owner.freed.Load() == 3 })
}

func TestExchangeAfterItsDeadlineIsNotSent(t *testing.T) {
	p := connect(t, testOptions())
	testsupport.Equal[error](t, get("/").within(-time.Second).do(p.conn).err, exchange.ErrDeadlineNotSent, "got %v")
	testsupport.Equal(t, p.owner.freed.Load(), 1, "%d places were freed")
	done := p.start(get("/"))
	testsupport.Equal(t, p.request().StreamID, 1, "a request was sent before: stream %d")
	p.respond(1, "ok")
	wait(t, done).wantBody(t, "ok")
}
