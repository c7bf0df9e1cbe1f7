package chaos

import (
	"slices"
	"time"

	"adbuffer/internal/sspsim"
)

// namedBehaviour is a behaviour that an SSP has for a while.
type namedBehaviour struct {
	name      string
	behaviour sspsim.Behaviour
	// only names the protocol that the SSP must speak; "" means any protocol.
	only string
}

const (
	onHTTP1      = "HTTP/1"
	onExclusive  = "HTTP/1, one request at a time"
	onHTTP2      = "HTTP/2"
	onlyHTTP2    = "HTTP/2 and never HTTP/1"
	onNegotiated = "the protocol that TLS negotiates"
)

// healthy is the behaviour on which all others are based. Most responses are small, some are large,
// and each names its request.
var healthy = sspsim.Behaviour{Latency: sspsim.Lognormal(8*time.Millisecond, 60*time.Millisecond),
	Response: sspsim.Response{Echo: true, NoBid: sspsim.Share(0.3), Size: sspsim.Size{P50: 1500, P95: 60_000, Max: 900_000}}}

// some is the share of requests that most faults hit.
var some = sspsim.Share(0.4)

// changed returns the healthy behaviour with a change.
func changed(name, only string, change func(*sspsim.Behaviour)) namedBehaviour {
	b := healthy
	change(&b)
	return namedBehaviour{name, b, only}
}

func faults(name, only string, f sspsim.Faults) namedBehaviour {
	return changed(name, only, func(b *sspsim.Behaviour) { b.Faults = f })
}

func responses(name, only string, change func(*sspsim.Response)) namedBehaviour {
	return changed(name, only, func(b *sspsim.Behaviour) { change(&b.Response) })
}

func connections(name, only string, c sspsim.Connections) namedBehaviour {
	return changed(name, only, func(b *sspsim.Behaviour) { b.Connections = c })
}

func slow(name string, l sspsim.Latency) namedBehaviour {
	return changed(name, "", func(b *sspsim.Behaviour) { b.Latency = l })
}

// No pipelined SSP sends a response that no request asked for: an HTTP/1.1 client cannot distinguish
// it from the response to the next request. No SSP sends a second response later than the first, as
// it may cross the next request.
var allBehaviours = []namedBehaviour{
	slow("slow", sspsim.Lognormal(250*time.Millisecond, 900*time.Millisecond)),
	slow("slow now and then", sspsim.Latency{
		Distribution: sspsim.Distribution{Constant: sspsim.Duration(5 * time.Millisecond)}, Slow: sspsim.Distribution{Constant: sspsim.Duration(2 * time.Second)}, SlowShare: 0.1,
	}),
	slow("at once", sspsim.Latency{}),
	faults("hangs", "", sspsim.Faults{Hang: some}),
	faults("stalls", "", sspsim.Faults{Stall: some}),
	faults("refuses connections", "", sspsim.Faults{Refuse: true, Reset: some}),
	faults("drops SYNs", "", sspsim.Faults{BlackHole: true, Reset: some}),
	faults("resets", "", sspsim.Faults{Reset: some}),
	faults("cuts heads", "", sspsim.Faults{CutHead: some}),
	faults("cuts bodies", "", sspsim.Faults{CutBody: some}),
	faults("drips", "", sspsim.Faults{Drip: sspsim.Drip{Chance: some, Bytes: 100, Pause: sspsim.Duration(5 * time.Millisecond)}}),
	faults("429", "", sspsim.Faults{Status: sspsim.Status{Chance: some, Code: 429}}),
	faults("429 with Retry-After", "", sspsim.Faults{Status: sspsim.Status{Chance: some, Code: 429, RetryAfter: sspsim.Duration(time.Second)}}),
	faults("503", "", sspsim.Faults{Status: sspsim.Status{Chance: some}}),
	faults("503 with Retry-After", "", sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Share(0.02), RetryAfter: sspsim.Duration(time.Second), RetryAfterDate: true}}),
	faults("malformed", "", sspsim.Faults{Malformed: sspsim.Malformed{Chance: some}}),
	faults("huge heads", "", sspsim.Faults{OversizedHead: sspsim.Oversized{Chance: some}}),
	faults("huge bodies", "", sspsim.Faults{OversizedBody: sspsim.Oversized{Chance: some, Bytes: 3 << 20}}),
	changed("a second response behind the first", onExclusive, func(b *sspsim.Behaviour) {
		b.Faults.Leftover = sspsim.Share(0.1)
		b.Response.Size.P95, b.Response.Size.Max = 5000, 15_000 // small, so that both responses arrive at once
	}),
	faults("DATA behind the end", onlyHTTP2, sspsim.Faults{Leftover: some}),
	faults("refuses streams", onHTTP2, sspsim.Faults{RefuseStream: some}),
	faults("resets streams", onHTTP2, sspsim.Faults{ResetStream: sspsim.ResetStream{Chance: some}}),
	faults("cancels streams after the head", onHTTP2, sspsim.Faults{ResetStream: sspsim.ResetStream{Chance: some, Code: "CANCEL", AfterHead: true}}),
	faults("refuses streams after the head", onHTTP2, sspsim.Faults{ResetStream: sspsim.ResetStream{Chance: some, Code: "REFUSED_STREAM", AfterHead: true}}),
	faults("wants HTTP/1.1 after the head", onHTTP2, sspsim.Faults{ResetStream: sspsim.ResetStream{Chance: some, Code: "HTTP_1_1_REQUIRED", AfterHead: true}}),
	faults("GOAWAY", onHTTP2, sspsim.Faults{GoAway: sspsim.GoAway{Chance: sspsim.Share(0.1)}}),
	faults("GOAWAY before the request", onHTTP2, sspsim.Faults{GoAway: sspsim.GoAway{Chance: sspsim.Share(0.1), Exclude: true}}),
	faults("GOAWAY, calm down", onHTTP2, sspsim.Faults{GoAway: sspsim.GoAway{Chance: sspsim.Share(0.1), Code: "ENHANCE_YOUR_CALM", Exclude: true}}),
	responses("HTTP/1.0", onHTTP1, func(a *sspsim.Response) { a.HTTP10 = some }),
	responses("bodies that end with the connection", onHTTP1, func(a *sspsim.Response) { a.ReadToEOF = some }),
	responses("chunks", onHTTP1, func(a *sspsim.Response) { a.Chunked = some }),
	responses("trailers", "", func(a *sspsim.Response) { a.Trailers = some }),
	responses("103 first", "", func(a *sspsim.Response) { a.Interim = some }),
	responses("cookies", "", func(a *sspsim.Response) { a.Cookies = some }),
	responses("no bids", "", func(a *sspsim.Response) { a.NoBid, a.NoBidForm = sspsim.Always, sspsim.NoBidDocument }),
	responses("empty bodies", "", func(a *sspsim.Response) { a.NoBid, a.NoBidForm = some, sspsim.NoBidEmpty }),
	responses("large bodies", "", func(a *sspsim.Response) { a.Size = sspsim.Size{Constant: 700_000} }),
	connections("closes after 3 requests, announced", "", sspsim.Connections{MaxRequests: 3, Announce: true}),
	connections("closes after 5 requests", "", sspsim.Connections{MaxRequests: 5}),
	connections("closes after 30 ms", "", sspsim.Connections{IdleTimeout: sspsim.Duration(30 * time.Millisecond)}),
	connections("two streams at once", onHTTP2, sspsim.Connections{MaxStreams: 2}),
	connections("no streams", onHTTP2, sspsim.Connections{MaxStreams: -1}),
	connections("behind mixed load balancers", onNegotiated, sspsim.Connections{HTTP1Only: some}),
}

// behavioursFor returns the behaviours that an SSP of this kind may have.
func behavioursFor(k sspKind) []namedBehaviour {
	if k.healthy {
		return []namedBehaviour{{name: "healthy", behaviour: healthy}}
	}
	http1 := k.speaks == sspsim.HTTP1 || k.speaks == sspsim.TLSHTTP1
	fits := map[string]bool{"": true, onHTTP1: http1, onExclusive: k.protocol == "http1", onHTTP2: !http1, onlyHTTP2: !http1 && k.speaks != sspsim.TLSAuto,
		onNegotiated: k.speaks == sspsim.TLSAuto}
	return slices.DeleteFunc(slices.Clone(allBehaviours), func(m namedBehaviour) bool { return !fits[m.only] })
}
