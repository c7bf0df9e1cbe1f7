package http2

import (
	"fmt"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// startMany starts n exchanges and returns them by their stream.
func (p *peer) startMany(n int) (ids []uint32, done map[uint32]<-chan result) {
	p.t.Helper()
	byPath := make(map[string]<-chan result)
	for i := range n {
		path := fmt.Sprint("/", i)
		byPath[path] = p.start(get(path))
	}
	done = make(map[uint32]<-chan result)
	for range n {
		req := p.request()
		ids = append(ids, req.StreamID)
		done[req.StreamID] = byPath[req.PseudoValue("path")]
	}
	return ids, done
}

var notProcessed = want{outcome: exchange.ConnLost, progress: exchange.NotProcessed}

func TestGoAwayFailsLaterStreamsAndCompletesTheRest(t *testing.T) {
	p := connect(t, testOptions())
	ids, done := p.startMany(6)
	p.do(p.fr.WriteGoAway(ids[2], h2.ErrCodeNo, nil))
	for _, id := range ids[3:] {
		r := wait(t, done[id])
		r.wantError(t, notProcessed)
		testsupport.Equal(t, r.served, 1, "%d requests were processed for each later one")
	}
	p.wantClosed(exchange.ClosedGoaway)
	get("/late").do(p.conn).wantError(t, notProcessed)
	for _, id := range ids[:3] {
		p.respond(id, fmt.Sprint("response ", id))
	}
	for _, id := range ids[:3] {
		wait(t, done[id]).wantBody(t, fmt.Sprint("response ", id))
	}
	p.wantGoAway(h2.ErrCodeNo) // the connection ends with its last exchange
	testsupport.Equal(t, p.owner.freed.Load(), 7, "%d places were freed")
}

func TestGoAwayInTwoSteps(t *testing.T) {
	p := connect(t, testOptions())
	ids, done := p.startMany(2)
	p.do(p.fr.WriteGoAway(http2codec.MaxStreamID, h2.ErrCodeNo, nil))
	p.owner.awaitChange(t)
	p.wantClosed(exchange.ClosedGoaway)
	p.ping() // no exchange has failed so far
	testsupport.MustTrue(t, len(done[ids[1]]) == 0, "the announcement ended an exchange")
	p.do(p.fr.WriteGoAway(ids[0], h2.ErrCodeNo, nil))
	wait(t, done[ids[1]]).wantError(t, notProcessed)
	p.respond(ids[0], "ok")
	wait(t, done[ids[0]]).wantBody(t, "ok")
	p.wantEnd()
}

func TestGoAwayOnAnIdleConnectionClosesIt(t *testing.T) {
	p := connect(t, testOptions())
	p.do(p.fr.WriteGoAway(0, h2.ErrCodeNo, nil))
	p.owner.awaitChange(t)
	testsupport.Equal(t, p.conn.CloseReason(), exchange.ClosedGoaway, "reason %v")
	p.wantEnd()
}

func TestGoAwayCodeDemotesOrRefusesHTTP2(t *testing.T) {
	for code, w := range map[h2.ErrCode]want{
		h2.ErrCodeInadequateSecurity: {refuses: true},
		h2.ErrCodeHTTP11Required:     {refuses: true},
		h2.ErrCodeProtocol:           {demote: true},
		h2.ErrCodeCompression:        {demote: true},
		h2.ErrCodeEnhanceYourCalm:    {},
		h2.ErrCodeInternal:           {},
		h2.ErrCodeNo:                 {},
	} {
		t.Run(code.String(), func(t *testing.T) {
			p := connect(t, testOptions())
			ids, done := p.startMany(2)
			p.do(p.fr.WriteGoAway(ids[0], code, nil))
			w.outcome, w.progress = exchange.ConnLost, exchange.NotProcessed
			if code != h2.ErrCodeNo {
				w.detail = code.String()
			}
			wait(t, done[ids[1]]).wantError(t, w)
			p.net.Close()
			w.progress, w.detail = exchange.MaybeProcessed, ""
			wait(t, done[ids[0]]).wantError(t, w)
			testsupport.Equal(t, p.conn.CloseReason(), exchange.ClosedGoaway, "reason %v: the first one stays")
		})
	}
}

func TestResetByThePeer(t *testing.T) {
	for code, w := range map[h2.ErrCode]want{
		h2.ErrCodeRefusedStream:  {outcome: exchange.ConnLost, progress: exchange.NotProcessed},
		h2.ErrCodeHTTP11Required: {outcome: exchange.ConnLost, progress: exchange.MaybeProcessed, refuses: true, overHTTP1: true},
		h2.ErrCodeProtocol:       {outcome: exchange.ConnLost, progress: exchange.MaybeProcessed, demote: true},
		h2.ErrCodeInternal:       {outcome: exchange.ConnLost, progress: exchange.MaybeProcessed},
		h2.ErrCodeCancel:         {outcome: exchange.ConnLost, progress: exchange.MaybeProcessed},
		h2.ErrCodeNo:             {outcome: exchange.ConnLost, progress: exchange.MaybeProcessed},
		0x99:                     {outcome: exchange.ConnLost, progress: exchange.MaybeProcessed},
	} {
		w.detail = code.String()
		for _, status := range []string{"", "103", "200"} { // of HEADERS before the reset; "" = none
			t.Run(code.String()+status, func(t *testing.T) { // the model resets streams at other moments
				p, w := connect(t, testOptions()), w
				done, id := p.begin(get("/"))
				if status != "" { // the peer may have processed the request
					p.head(id, false, ":status", status)
					w.progress, w.overHTTP1 = exchange.MaybeProcessed, false
				}
				p.do(p.fr.WriteRSTStream(id, code))
				wait(t, done).wantError(t, w)
				p.afterwards()
			})
		}
	}
}

func TestConnectionDrainsWhenStreamNumbersEnd(t *testing.T) {
	p := connect(t, testOptions())
	p.conn.mu.Lock()
	p.conn.streams.next = http2codec.MaxStreamID - 2
	p.conn.mu.Unlock()
	first := p.start(get("/1"))
	testsupport.MustEqual(t, p.request().StreamID, http2codec.MaxStreamID-2, "stream %d")
	last := p.start(get("/2"))
	testsupport.MustEqual(t, p.request().StreamID, http2codec.MaxStreamID, "stream %d")
	p.owner.awaitChange(t)
	p.wantClosed(exchange.ClosedMaxRequests)
	get("/3").do(p.conn).wantError(t, notProcessed)
	p.respond(http2codec.MaxStreamID, "last")
	wait(t, last).wantBody(t, "last")
	p.respond(http2codec.MaxStreamID-2, "first")
	wait(t, first).wantBody(t, "first")
	p.wantEnd()
}

func TestStreamNumbersSkipOpenStreams(t *testing.T) {
	p := connect(t, with(func(o *Options) { o.MaxStreams = 2 })) // a ring of 8
	long := p.start(get("/long"))
	testsupport.MustEqual(t, p.request().StreamID, 1, "stream %d")
	last := uint32(1)
	for i := range 40 {
		done := p.start(get(fmt.Sprint("/", i)))
		id := p.requestAfterResets().StreamID
		if id <= last || id%16 == 1 { // 17, 33, ... have the slot of 1
			t.Fatalf("stream %d after %d", id, last)
		}
		last = id
		if id > 17 {
			p.data(id-16, true, "late") // for the earlier stream with the same slot
		}
		p.respond(id, fmt.Sprint(i))
		wait(t, done).wantBody(t, fmt.Sprint(i))
	}
	p.respond(1, "long")
	wait(t, long).wantBody(t, "long")
}
