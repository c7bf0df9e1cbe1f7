package http2

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"

	h2 "golang.org/x/net/http2"
)

// withHead returns a GET whose target, authority and fields have n bytes.
func withHead(n int) request {
	r := get("/")
	const name = "X-Fill: "
	r.fields = name + strings.Repeat("x", n-len("/ssp.example"+name+"\r\n")) + "\r\n"
	return r
}

// A head of more than 8 KiB shares no connection, unless the SSP has stated that it takes such a head.
func TestLargeHeadsShareNoConnection(t *testing.T) {
	p := connect(t, testOptions())
	done, id := p.begin(withHead(8192))
	p.respond(id, "ok")
	wait(t, done).wantBody(t, "ok")
	r := withHead(8193)
	res := r.do(p.conn)
	res.wantError(t, want{outcome: exchange.ConnLost, progress: exchange.NotSent, detail: "over 8 KiB"})
	e := exchange.AsError(res.err)
	testsupport.True(t, e.Isolate == exchange.IsolateNext && e.Collateral, "isolate %v, collateral %t", e.Isolate, e.Collateral)
	r.isolated = true
	done, id = p.begin(r)
	p.respond(id, "alone")
	wait(t, done).wantBody(t, "alone")

	p = connect(t, testOptions(), h2.Setting{ID: h2.SettingMaxHeaderListSize, Val: 16 << 10})
	done, id = p.begin(withHead(8193))
	p.respond(id, "stated")
	wait(t, done).wantBody(t, "stated")
}

// The end of a connection with five exchanges is one failure, which the newest exchange stands for.
func TestTheEndOfAConnectionIsOneFailure(t *testing.T) {
	for name, end := range map[string]func(p *peer){
		"EOF":       func(p *peer) { p.net.Close() },
		"violation": func(p *peer) { p.do(p.fr.WriteWindowUpdate(0, 0)) },
		"Close":     func(p *peer) { p.conn.Close(exchange.ClosedMaxAge) },
		"GOAWAY": func(p *peer) {
			p.do(p.fr.WriteGoAway(9, h2.ErrCodeEnhanceYourCalm, nil))
			p.net.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			ids, done := p.startMany(5)
			end(p)
			for i, id := range ids {
				e := exchange.AsError(wait(t, done[id]).err)
				testsupport.True(t, e.Progress == exchange.MaybeProcessed && e.Collateral == (i < 4), "exchange %d got %v, collateral %t", i, e, e.Collateral)
			}
		})
	}
}

// A GOAWAY with an error leaves out three streams. The first of them may be its reason, and is sent again
// alone. Of all five exchanges only this one counts as a failure.
func TestTheFirstStreamAfterAGoAwayWithAnErrorIsSentAgainAlone(t *testing.T) {
	for code, isolate := range map[h2.ErrCode]exchange.Isolate{
		h2.ErrCodeProtocol:        exchange.IsolateNext,
		h2.ErrCodeEnhanceYourCalm: exchange.IsolateNext,
		h2.ErrCodeNo:              exchange.IsolateLast,
	} {
		t.Run(code.String(), func(t *testing.T) {
			p := connect(t, testOptions())
			ids, done := p.startMany(5)
			p.do(p.fr.WriteGoAway(ids[1], code, nil))
			p.owner.awaitChange(t)
			for i, id := range ids[2:] {
				e := exchange.AsError(wait(t, done[id]).err)
				want := isolate
				if i > 0 {
					want = exchange.IsolateLast
				}
				testsupport.True(t, e.Progress == exchange.NotProcessed && e.Isolate == want && e.Collateral == (i > 0), "exchange %d got %v, isolate %v, collateral %t", i+2, e, e.Isolate, e.Collateral)
			}
			p.net.Close()
			for i, id := range ids[:2] {
				e := exchange.AsError(wait(t, done[id]).err)
				testsupport.True(t, e.Progress == exchange.MaybeProcessed && e.Collateral, "exchange %d got %v, collateral %t", i, e, e.Collateral)
			}
		})
	}
}

// If the SSP refuses an isolated request with a head over 8 KiB, the client is to blame. HTTP/2 stays on.
func TestRefusedLargeHeadIsTheClientsFault(t *testing.T) {
	for name, refuse := range map[string]func(p *peer, id uint32){
		"reset": func(p *peer, id uint32) { p.do(p.fr.WriteRSTStream(id, h2.ErrCodeProtocol)) },
		"GOAWAY that includes it": func(p *peer, id uint32) {
			p.do(p.fr.WriteGoAway(id, h2.ErrCodeEnhanceYourCalm, nil))
			p.net.Close()
		},
		"GOAWAY that leaves it out": func(p *peer, _ uint32) { p.do(p.fr.WriteGoAway(0, h2.ErrCodeProtocol, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			r := withHead(9216)
			r.isolated = true
			done, id := p.begin(r)
			refuse(p, id)
			wait(t, done).wantError(t, want{outcome: exchange.TooLarge, progress: exchange.MaybeProcessed, detail: "the request's header has 9216 bytes, and SSPs need not accept more than 8192"})
		})
	}
}
