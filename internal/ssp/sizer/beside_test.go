//go:build !race

package sizer

import "slices"

// beside holds the parts of an SSP that decide on requests before or after they need a place. Each part models the
// part of package ssp that has its name.
type beside struct {
	breaker *breaker
	hedge   *hedge
}

// holdsBack reports whether the sizer is frozen.
func (b *beside) holdsBack(w *world) bool { return b.breaker.share(w.now) > 0 }

// refuses decides about a request that arrives.
func (b *beside) refuses(w *world) bool {
	share := b.breaker.share(w.now)
	return share > 0 && w.rng.Float64() < share
}

// ended learns how an attempt that was sent has ended.
func (b *beside) ended(w *world, held float64, failed bool) {
	if b.breaker != nil {
		b.breaker.note(w.now, failed)
	}
	if b.hedge != nil {
		b.hedge.note(held)
	}
}

// breaker sheds more requests the more requests of the last ten seconds failed.
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
	if b == nil {
		return 0
	}
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
