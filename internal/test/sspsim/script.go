package sspsim

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// event is what a Chance decides about. Their order is that of the fields of a Behaviour.
type event uint8

const (
	noFault event = iota
	// Traits of a response; HTTP/2 has only the last ones.
	traitNoBid
	traitHTTP10
	traitToEOF
	traitChunked
	traitTrailers
	traitInterim
	traitCookies
	// Events of a connection.
	http1Only
	faultHang
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
	faultLeftover
	faultOversizedHead
	faultOversizedBody
	faultMalformed
	events
)

// eventKeys are the keys of the Chances in the JSON of a Behaviour, such as "faults.stall".
var eventKeys = func() []string {
	keys := []string{"none"}
	eachChance(reflect.ValueOf(Behaviour{}), "", func(key string, _ Chance) { keys = append(keys, key) })
	return keys
}()

// eachChance calls do with each Chance in a struct, in the order of the fields, and with its key, which starts with
// path.
func eachChance(v reflect.Value, path string, do func(key string, c Chance)) {
	for f, field := range v.Fields() {
		key := path + f.Tag.Get("json")
		if chance, ok := field.Interface().(Chance); ok {
			do(strings.TrimSuffix(key, "."), chance)
		} else if field.Kind() == reflect.Struct {
			eachChance(field, key+".", do)
		}
	}
}

// name is the key of a fault in Counters.Faults, spelled as in the JSON of Faults.
func (f event) name() string { return strings.TrimPrefix(eventKeys[f], "faults.") }

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
	dice [events]dice

	malformed1, malformed2 []Malformation // the kinds for each protocol
}

func newScript(b Behaviour) *script {
	p := &script{Behaviour: b.clone()}
	i := noFault
	eachChance(reflect.ValueOf(b), "", func(_ string, chance Chance) {
		i++
		p.dice[i].Chance = chance
	})
	p.malformed1 = malformationsOf(http1Malformations, b.Faults.Malformed.Kinds)
	p.malformed2 = malformationsOf(http2Malformations, b.Faults.Malformed.Kinds)
	return p
}

func (p *script) dripBytes() int { return cmp.Or(p.Faults.Drip.Bytes, 1) }

func (p *script) dripPause() time.Duration {
	return time.Duration(cmp.Or(p.Faults.Drip.Pause, Duration(10*time.Millisecond)))
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
	chance       float64 // random, 0 up to 1: a request whose FillRate is above it gets a bid; 0 without Response.FillBy
}

// draw makes all draws for one request of HTTP/1 or HTTP/2. It draws every applicable die for every
// request. So "every N" is every Nth request, independently of all other draws.
func (p *script) draw(r *rand.Rand, isHTTP2 bool) fate {
	f := fate{delay: p.Latency.draw(r), size: p.Response.Size.draw(r), status: p.Faults.Status}
	kinds := p.malformed1
	if isHTTP2 {
		kinds = p.malformed2
	}
	for trait := traitNoBid; trait <= traitCookies; trait++ {
		onlyHTTP1 := trait == traitHTTP10 || trait == traitToEOF || trait == traitChunked
		f.traits[trait] = (!onlyHTTP1 || !isHTTP2) && p.dice[trait].roll(r)
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
	if len(p.Response.FillBy) > 0 {
		f.chance = r.Float64()
	}
	return f
}
