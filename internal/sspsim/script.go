package sspsim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// event is what a Chance decides about.
type event uint8

const (
	noFault event = iota
	// Faults of a request, in the order of precedence.
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
	// Traits of a response; the first ones only of HTTP/1.
	traitHTTP10
	traitToEOF
	traitChunked
	traitTrailers
	traitInterim
	traitCookies
	traitNoBid
	// Events of a connection.
	faultHang
	http1Only
	events
)

// eventPaths are the paths of the Chances in the JSON of a Behaviour.
var eventPaths = [events]string{
	noFault: "none", faultStall: "faults.stall", faultReset: "faults.reset", faultCutHead: "faults.cut_head", faultCutBody: "faults.cut_body",
	faultRefuseStream: "faults.refuse_stream", faultResetStream: "faults.reset_stream", faultGoAway: "faults.goaway",
	faultStatus: "faults.status", faultDrip: "faults.drip", faultUnsolicited: "faults.unsolicited", faultLeftover: "faults.leftover",
	faultOversizedHead: "faults.oversized_head", faultOversizedBody: "faults.oversized_body", faultMalformed: "faults.malformed",
	traitHTTP10: "response.http10", traitToEOF: "response.read_to_eof", traitChunked: "response.chunked",
	traitTrailers: "response.trailers", traitInterim: "response.interim", traitCookies: "response.cookies",
	traitNoBid: "response.no_bid",
	faultHang:  "faults.hang", http1Only: "connections.http1_only",
}

// chances returns the Chance of each event.
func (b *Behaviour) chances() [events]Chance {
	a, f := &b.Response, &b.Faults
	return [events]Chance{
		faultStall: f.Stall, faultReset: f.Reset, faultCutHead: f.CutHead, faultCutBody: f.CutBody,
		faultRefuseStream: f.RefuseStream, faultResetStream: f.ResetStream.Chance, faultGoAway: f.GoAway.Chance,
		faultStatus: f.Status.Chance, faultDrip: f.Drip.Chance, faultUnsolicited: f.Unsolicited.Chance, faultLeftover: f.Leftover,
		faultOversizedHead: f.OversizedHead.Chance, faultOversizedBody: f.OversizedBody.Chance, faultMalformed: f.Malformed.Chance,
		traitHTTP10: a.HTTP10, traitToEOF: a.ReadToEOF, traitChunked: a.Chunked, traitTrailers: a.Trailers,
		traitInterim: a.Interim, traitCookies: a.Cookies, traitNoBid: a.NoBid,
		faultHang: f.Hang, http1Only: b.Connections.HTTP1Only,
	}
}

// name is the key of a fault in Counters.Faults, spelled as in the JSON of Faults.
func (f event) name() string { return strings.TrimPrefix(eventPaths[f], "faults.") }

// needsBody reports whether the fault is visible only in a response with a body.
func (f event) needsBody() bool {
	switch f {
	case faultCutBody, faultResetStream, faultDrip, faultLeftover, faultOversizedBody, faultMalformed:
		return true
	}
	return false
}

// dice draws the events of a Chance.
type dice struct {
	Chance
	n atomic.Uint64 // events so far; counted only if Every is above 1
}

func (d *dice) roll(r *rand.Rand) bool {
	hit := d.Every == 1
	if d.Every > 1 {
		hit = d.n.Add(1)%uint64(d.Every) == 0
	}
	return d.Share > 0 && r.Float64() < d.Share || hit
}

// script is a Behaviour that is ready for use. Only its counts change.
type script struct {
	Behaviour
	bidFor []byte
	dice   [events]dice

	malformed1, malformed2 []Malformation // the kinds for each protocol
}

func newScript(b Behaviour) *script {
	p := &script{Behaviour: b.clone(), bidFor: []byte(b.Response.BidFor)}
	for i, chance := range b.chances() {
		p.dice[i].Chance = chance
	}
	p.malformed1 = malformationsOf(http1Malformations, b.Faults.Malformed.Kinds)
	p.malformed2 = malformationsOf(http2Malformations, b.Faults.Malformed.Kinds)
	return p
}

func (p *script) dripBytes() int { return cmp.Or(p.Faults.Drip.Bytes, 1) }

func (p *script) dripPause() time.Duration {
	return time.Duration(cmp.Or(p.Faults.Drip.Pause, Duration(10*time.Millisecond)))
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
	return slices.DeleteFunc(slices.Clone(chosen), func(kind Malformation) bool { return !slices.Contains(protocol, kind) })
}

// fate is the result of all draws for one request.
type fate struct {
	delay        time.Duration
	size         int
	fault        event
	status       Status // of faultStatus
	malformation Malformation
	traits       [events]bool
}

// draw makes all draws for one request of HTTP/1 or HTTP/2. It draws every applicable die for every
// request. So "every N" is every Nth request, independently of all other draws.
func (p *script) draw(r *rand.Rand, isHTTP2 bool) fate {
	f := fate{delay: p.Latency.draw(r), size: p.Response.Size.draw(r), status: p.Faults.Status}
	f.traits[traitNoBid] = p.dice[traitNoBid].roll(r)
	kinds, firstTrait := p.malformed1, traitHTTP10
	if isHTTP2 {
		kinds, firstTrait = p.malformed2, traitTrailers
	}
	for trait := firstTrait; trait < traitNoBid; trait++ {
		f.traits[trait] = p.dice[trait].roll(r)
	}
	for kind := faultStall; kind <= faultMalformed; kind++ {
		onlyHTTP2 := kind == faultRefuseStream || kind == faultResetStream || kind == faultGoAway
		if onlyHTTP2 && !isHTTP2 || kind == faultMalformed && len(kinds) == 0 {
			continue
		}
		if p.dice[kind].roll(r) && f.fault == noFault {
			f.fault = kind
		}
	}
	if f.fault == faultMalformed {
		f.malformation = kinds[r.IntN(len(kinds))]
	}
	if f.fault.needsBody() {
		f.traits[traitNoBid] = false
	}
	return f
}
