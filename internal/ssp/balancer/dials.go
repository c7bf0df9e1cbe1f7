package balancer

import (
	"cmp"
	"math"
	"slices"
)

// DialOrder returns the endpoints that a dial may go to, in the order of preference. conns returns how many
// connections an endpoint has, including those that are being dialled.
//
// If waiting is set, a request waits for the dial: DialOrder uses a turn, and the endpoint of that turn comes first.
// The other active endpoints follow, the least crowded first. Endpoints that are neither active nor barred come last.
func (b *Balancer) DialOrder(waiting bool, conns func(*Endpoint) int) []*Endpoint {
	if len(b.all) == 1 {
		return b.all
	}
	b.endRounds()
	var inTurn *Endpoint
	if waiting {
		inTurn = b.nextDial()
	}
	var active, others []*Endpoint
	for _, e := range b.all {
		if e.active {
			active = append(active, e)
		} else if !e.barred {
			others = append(others, e)
		}
	}
	crowding := func(e *Endpoint) float64 {
		if e == inTurn {
			return math.Inf(-1)
		}
		return e.crowding(conns(e))
	}
	slices.SortStableFunc(active, func(a, b *Endpoint) int { return cmp.Compare(crowding(a), crowding(b)) })
	return append(active, others...)
}

// nextDial returns the endpoint that has the next turn for a dial, and uses that turn. It skips, and uses, the turns
// of endpoints that are ahead. endRounds must have been called.
func (b *Balancer) nextDial() *Endpoint {
	for _, e := range b.all {
		if e.ahead < 0 {
			e.ahead++
			return e
		}
	}
	for { // the loop ends, since after endRounds one endpoint is ahead by less than a round
		e := b.turns.next()
		b.turns.advance()
		if e.ahead == 0 {
			return e
		}
		e.ahead--
	}
}

// crowding returns the number of connections of e, including the next one, divided by its weight. Requests that e
// served ahead of its turns, up to a round of them, count as connections.
func (e *Endpoint) crowding(conns int) float64 {
	return float64(conns+1+max(-e.turns, min(e.ahead, e.turns))) / float64(e.Weight())
}

// maxRoundsAhead bounds how many rounds an endpoint may be ahead of its turns, or behind them, so that what happened
// long ago does not decide the next dials.
const maxRoundsAhead = 8

// Served records how many waiting requests a connection to e served, and how many turns were used for them. A request
// that gets a place which another request has released used no turn. A turn was used without a request if a
// connection was dialled for a request that another connection served meanwhile.
func (b *Balancer) Served(e *Endpoint, requests, turns int) {
	limit := maxRoundsAhead * e.turns
	e.ahead = max(-limit, min(e.ahead+requests-turns, limit))
}

// endRounds subtracts the whole rounds by which all active endpoints are ahead of their turns.
func (b *Balancer) endRounds() {
	rounds := maxRoundsAhead
	for _, e := range b.all {
		if e.active {
			rounds = min(rounds, e.ahead/e.turns)
		}
	}
	for _, e := range b.all {
		e.ahead -= max(0, rounds) * e.turns
	}
}
