package sspsim

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// fault is the injected fault of one request, in the order of precedence.
type fault uint8

const (
	noFault fault = iota
	faultStall
	faultReset
	faultCutHead
	faultCutBody
	faultRefuseStream
	faultResetStream
	faultGoAway
	faultStatus
	faultDrip
	faultUnsolicited
	faultLeftover
	faultOversizedHead
	faultOversizedBody
	faultMalformed
	faultHang // of a connection, not of a request
	faults
)

// faultNames are the keys of Counters.Faults, spelled as in the JSON of Faults.
var faultNames = [faults]string{
	faultStall: "stall", faultReset: "reset", faultCutHead: "cut_head", faultCutBody: "cut_body",
	faultRefuseStream: "refuse_stream", faultResetStream: "reset_stream", faultGoAway: "goaway",
	faultStatus: "status", faultDrip: "drip", faultUnsolicited: "unsolicited", faultLeftover: "leftover",
	faultOversizedHead: "oversized_head", faultOversizedBody: "oversized_body",
	faultMalformed: "malformed", faultHang: "hang",
}

// needsBody reports whether the fault is visible only in a response with a body.
func (f fault) needsBody() bool {
	switch f {
	case faultCutBody, faultResetStream, faultDrip, faultLeftover, faultOversizedBody, faultMalformed:
		return true
	}
	return false
}

// dice draws the events of a Chance.
type dice struct {
	share float64
	every uint64
	n     atomic.Uint64 // events so far; counted only if every is above 1
}

func (d *dice) set(c Chance) { d.share, d.every = c.Share, uint64(c.Every) }

func (d *dice) off() bool { return d.share == 0 && d.every == 0 }

func (d *dice) roll(r *rand.Rand) bool {
	hit := d.every == 1
	if d.every > 1 {
		hit = d.n.Add(1)%d.every == 0
	}
	return d.share > 0 && r.Float64() < d.share || hit
}

// script is a Behaviour that is ready for use. Only its counts change.
type script struct {
	Behaviour           // with the defaults of Faults applied
	given     Behaviour // as it was given to Set
	latency   latencySampler
	size      sampler
	headers   []headerField

	contentType []byte // nil means the content type of the document

	hang, http1Only                               dice
	noBid                                         dice
	http10, toEOF, chunked, trailers, interim, ck dice
	faultDice                                     [faults]dice
	plain                                         bool // the only draw for a request is noBid

	malformed1, malformed2 []Malformation // the kinds for each protocol
}

func newScript(b Behaviour) *script {
	b = b.clone()
	p := &script{Behaviour: b, given: b, latency: b.Latency.sampler(), size: b.Response.Size.sampler()}
	for _, f := range b.Response.Headers {
		p.headers = append(p.headers, newHeaderField(f.Name, f.Value))
	}
	if b.Response.ContentType != "" {
		p.contentType = []byte(b.Response.ContentType)
	}
	p.hang.set(b.Faults.Hang)
	p.http1Only.set(b.Connections.HTTP1Only)
	p.noBid.set(b.Response.NoBid)
	p.http10.set(b.Response.HTTP10)
	p.toEOF.set(b.Response.ReadToEOF)
	p.chunked.set(b.Response.Chunked)
	p.trailers.set(b.Response.Trailers)
	p.interim.set(b.Response.Interim)
	p.ck.set(b.Response.Cookies)
	f := &b.Faults
	for kind, c := range [faults]Chance{
		faultStall: f.Stall, faultReset: f.Reset, faultCutHead: f.CutHead, faultCutBody: f.CutBody,
		faultRefuseStream: f.RefuseStream, faultResetStream: f.ResetStream.Chance, faultGoAway: f.GoAway.Chance,
		faultStatus: f.Status.Chance, faultDrip: f.Drip.Chance, faultUnsolicited: f.Unsolicited.Chance,
		faultLeftover: f.Leftover, faultOversizedHead: f.OversizedHead.Chance,
		faultOversizedBody: f.OversizedBody.Chance, faultMalformed: f.Malformed.Chance,
	} {
		p.faultDice[kind].set(c)
	}
	p.plain = p.http10.off() && p.toEOF.off() && p.chunked.off() && p.trailers.off() && p.interim.off() && p.ck.off()
	for i := range p.faultDice {
		p.plain = p.plain && p.faultDice[i].off()
	}
	p.malformed1 = malformationsOf(http1Malformations, f.Malformed.Kinds)
	p.malformed2 = malformationsOf(http2Malformations, f.Malformed.Kinds)
	setDefault(&p.Faults.Status.Code, 503)
	setDefault(&p.Faults.Drip.Bytes, 1)
	setDefault(&p.Faults.Drip.Pause, 10*time.Millisecond)
	setDefault(&p.Faults.Unsolicited.Delay, time.Millisecond)
	setDefault(&p.Faults.OversizedHead.Bytes, 64<<10)
	setDefault(&p.Faults.OversizedBody.Bytes, 4<<20)
	return p
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func malformationsOf(protocol, chosen []Malformation) []Malformation {
	if len(chosen) == 0 {
		return protocol
	}
	var both []Malformation
	for _, kind := range chosen {
		if slices.Contains(protocol, kind) {
			both = append(both, kind)
		}
	}
	return both
}

// goAwayCode and resetCode are the error codes to send, with their defaults applied.
func (p *script) goAwayCode() http2.ErrCode {
	return errCode(p.Faults.GoAway.Code, http2.ErrCodeNo)
}

func (p *script) resetCode() http2.ErrCode {
	return errCode(p.Faults.ResetStream.Code, http2.ErrCodeInternal)
}

// fate is the result of all draws for one request.
type fate struct {
	delay                                              time.Duration
	fault                                              fault
	malformation                                       Malformation
	size                                               int
	noBid                                              bool
	http10, toEOF, chunked, trailers, interim, cookies bool
}

// draw makes all draws for one request of HTTP/1 or HTTP/2. It draws every applicable die for every
// request. So "every N" is every Nth request, independently of all other draws.
func (p *script) draw(r *rand.Rand, isHTTP2 bool) fate {
	f := fate{delay: p.latency.draw(r), size: int(p.size.draw(r)), noBid: p.noBid.roll(r)}
	if p.plain {
		return f
	}
	kinds := p.malformed1
	if isHTTP2 {
		kinds = p.malformed2
	} else {
		f.http10, f.toEOF, f.chunked = p.http10.roll(r), p.toEOF.roll(r), p.chunked.roll(r)
	}
	f.trailers, f.interim, f.cookies = p.trailers.roll(r), p.interim.roll(r), p.ck.roll(r)
	for kind := faultStall; kind <= faultMalformed; kind++ {
		onlyHTTP2 := kind == faultRefuseStream || kind == faultResetStream || kind == faultGoAway
		if onlyHTTP2 && !isHTTP2 || kind == faultMalformed && len(kinds) == 0 {
			continue
		}
		if p.faultDice[kind].roll(r) && f.fault == noFault {
			f.fault = kind
		}
	}
	if f.fault == faultMalformed {
		f.malformation = kinds[r.IntN(len(kinds))]
	}
	if f.fault.needsBody() {
		f.noBid = false
	}
	return f
}
