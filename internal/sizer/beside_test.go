//go:build !race

package sizer

import (
	"math"
	"slices"
)

// beside is what an SSP has beside its pool. Each part decides on requests before or after they need a
// place, as its model in package ssp does.
type beside struct {
	breaker  *breaker
	adaptive *adaptive
	hedge    *hedge
}

// holdsBack reports whether the sizer is frozen.
func (b *beside) holdsBack(w *world) bool {
	return b.breaker != nil && b.breaker.share(w.now) > 0 || b.adaptive != nil && b.adaptive.limits(w.inFlight())
}

// refuses decides about a request that arrives.
func (b *beside) refuses(w *world) bool {
	if b.adaptive != nil && b.adaptive.limits(w.inFlight()) {
		return true
	}
	share := 0.0
	if b.breaker != nil {
		share = b.breaker.share(w.now)
	}
	return share > 0 && w.rng.Float64() < share
}

// ended learns how an attempt ended that was sent.
func (b *beside) ended(w *world, held float64, failed bool) {
	if b.breaker != nil {
		b.breaker.note(w.now, failed)
	}
	if b.adaptive != nil {
		b.adaptive.note(w.now, held, w.inFlight())
	}
	if b.hedge != nil {
		b.hedge.note(held)
	}
}

// inFlight returns how many requests have a place or wait for one.
func (w *world) inFlight() int { return w.busy + w.waiting }

// breaker sheds the more, the more of the last ten seconds' requests failed.
type breaker struct {
	sent, failed [10]int // by second
	second       int
}

func (b *breaker) advance(now float64) {
	for ; b.second < int(now); b.second++ {
		i := (b.second + 1) % len(b.sent)
		b.sent[i], b.failed[i] = 0, 0
	}
}

func (b *breaker) note(now float64, failed bool) {
	b.advance(now)
	b.sent[b.second%len(b.sent)]++
	if failed {
		b.failed[b.second%len(b.sent)]++
	}
}

func (b *breaker) share(now float64) float64 {
	const failureRatio, minRequests, minProbe = 0.5, 20, 0.1
	b.advance(now)
	sent, failed := 0, 0
	for i := range b.sent {
		sent, failed = sent+b.sent[i], failed+b.failed[i]
	}
	if sent < minRequests {
		return 0
	}
	return max(0, (float64(failed)/float64(sent)-failureRatio)/(1-failureRatio)*(1-minProbe))
}

// adaptive limits the requests in flight by the gradient of the latency, each half second.
type adaptive struct {
	limit, peak         int // limit: 0 is none
	sum                 float64
	n                   int
	until, base, probes float64 // probes: when the next probe begins
	probing             int     // windows of the probe so far
	before              int     // the limit before the probe
}

func (a *adaptive) limits(inFlight int) bool { return a.limit > 0 && inFlight >= a.limit }

func (a *adaptive) note(now, held float64, inFlight int) {
	const window, samples, tolerance, every, suspect, floor = 0.5, 50, 1.5, 30, 1.25, 8
	a.peak, a.sum = max(a.peak, inFlight), a.sum+held
	if a.n++; a.n < samples || now < a.until {
		return
	}
	latency, peak := a.sum/float64(a.n), a.peak
	a.sum, a.n, a.peak, a.until = 0, 0, 0, now+window
	limited := a.limit > 0 && peak >= a.limit
	switch {
	case a.base == 0:
		a.base = latency
	case latency < a.base, a.probing == 2:
		a.base += (latency - a.base) / 2
	case latency <= tolerance*a.base:
		a.base += (latency - a.base) / 100
	}
	switch a.probing {
	case 1:
		a.probing = 2
		return
	case 2:
		a.probing, a.probes, a.limit = 0, now+every, a.before
		return
	}
	gradient := tolerance * a.base / latency
	switch {
	case gradient >= 1 && (a.limit == 0 || peak < a.limit/2):
	default:
		from := a.limit
		if gradient < 1 && (from == 0 || peak < from) {
			from = peak
		}
		a.limit = max(int(max(gradient, 0.5)*float64(from)+math.Sqrt(float64(from))), floor)
	}
	switch {
	case latency < suspect*a.base:
		a.probes = now + every
	case limited && now >= a.probes:
		a.probing, a.before = 1, a.limit
		a.limit = max(a.limit/2, floor)
	}
}

// hedge sends a second attempt for requests that take longer than 95 % of the others.
type hedge struct {
	late float64 // an estimate of that time
	due  fifo    // attempts that may become late, by their begin
}

func (h *hedge) note(held float64) {
	const step = 0.002
	if held > h.late {
		h.late += 0.95 * step
	} else {
		h.late -= 0.05 * step
	}
}

// sent begins to watch a first attempt.
func (h *hedge) sent(r *request) {
	if !r.second {
		h.due.push(r)
	}
}

// next returns when the next attempt is late.
func (h *hedge) next() float64 {
	for !h.due.empty() && h.due.front().state == over {
		h.due.pop()
	}
	if h.due.empty() {
		return never
	}
	return h.due.front().began + h.late
}

// begin sends the second attempt. It needs a place as any request does.
func (h *hedge) begin(w *world) {
	first := h.due.pop()
	second := &request{by: first.by, arrived: w.now, tries: first.tries, second: true, twin: first}
	first.twin = second
	w.need(second)
}

// pipe is a pipelined connection.
type pipe struct {
	inUse  int
	last   float64 // the virtual time of its last response
	closed bool    // it takes no more requests
}

// pipeFor returns the connection with the fewest requests.
func (w *world) pipeFor() *pipe {
	return slices.MinFunc(w.pipes, func(a, b *pipe) int { return a.inUse - b.inUse })
}

// closePipe ends an idle pipelined connection, or p. Requests that are on it go on.
func (w *world) closePipe(p *pipe) {
	if p == nil {
		p = w.pipeFor()
	}
	if i := slices.Index(w.pipes, p); i >= 0 {
		w.pipes = slices.Delete(w.pipes, i, i+1)
		p.closed = true
		w.open--
	}
}
