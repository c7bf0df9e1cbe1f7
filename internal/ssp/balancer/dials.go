package balancer

import (
	"cmp"
	"math"
	"slices"
)

// DialOrder returns the endpoints that a dial may go to, the best one first. conns returns how many connections an
// endpoint has, including those that are being dialled.
//
// If a request waits for the dial, DialOrder ends a turn, and the endpoint of the turn is the first. The other active
// endpoints follow, the least crowded first, and then endpoints that are not active, except the barred ones.
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

// nextDial returns the endpoint whose turn is the next one for a dial, and ends that turn. Turns of endpoints that
// are ahead of their turns end too. endRounds must have been called.
func (b *Balancer) nextDial() *Endpoint {
	for _, e := range b.all {
		if e.ahead < 0 {
			e.ahead++
			return e
		}
	}
	for { // an endpoint is ahead by less than a round
		e := b.turns.next()
		b.turns.use()
		if e.ahead == 0 {
			return e
		}
		e.ahead--
	}
}

// crowding returns the connections of e per weight, with the next one. Up to a round of requests that e served ahead
// of its turns count as connections.
func (e *Endpoint) crowding(conns int) float64 {
	return float64(conns+1+max(-e.turns, min(e.ahead, e.turns))) / float64(e.Weight())
}

// maxRoundsAhead bounds how many rounds an endpoint may be ahead of its turns or behind: what happened long ago must
// not decide the next dials.
const maxRoundsAhead = 8

// Served records how many waiting requests a connection to e served, and how many turns had ended for them. No turn
// has ended for a request that gets a place which another request released. A turn has ended without a request if the
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
