package balancer

import "math/rand/v2"

// turns is the order in which endpoints get requests: smooth weighted round robin. The order
// of a whole round is computed in advance, so that the number of endpoints does not change the cost
// of a request.
type turns struct {
	order    []*Endpoint
	position int // index in order of the next endpoint
}

// maxTurns bounds the length of a round. If the weights need a longer round, they are scaled down and rounded, to at
// least one turn each. So the round may be longer than maxTurns, by less than one turn for each endpoint.
const maxTurns = 1024

// next returns the endpoint whose turn it is.
func (t *turns) next() *Endpoint { return t.order[t.position] }

// advance ends the turn.
func (t *turns) advance() {
	t.position++
	if t.position == len(t.order) {
		t.position = 0
	}
}

// nextExcept returns the next endpoint in turn whose name is not name, or nil.
func (t *turns) nextExcept(name string) *Endpoint {
	for i := range t.order {
		if e := t.order[(t.position+i)%len(t.order)]; e.Name != name {
			return e
		}
	}
	return nil
}

// set computes the order. weights must be positive. The round starts at a random turn: otherwise the first requests
// of all adbuffers would go to the same endpoint.
func (t *turns) set(endpoints []*Endpoint, weights []int) {
	if len(endpoints) == 1 {
		t.order, t.position = endpoints, 0
		return
	}
	order := smoothRound(weights)
	t.order = make([]*Endpoint, len(order))
	for i, n := range order {
		t.order[i] = endpoints[n]
	}
	t.position = rand.IntN(len(order))
}

// smoothRound returns one round of smooth weighted round robin, as indices of weights. Each endpoint has a current
// value. In each turn every value grows by its weight; the endpoint with the highest value gets the turn, and the sum
// of the weights is subtracted from its value.
func smoothRound(weights []int) []int {
	weights = reduced(weights)
	sum := 0
	for _, w := range weights {
		sum += w
	}
	round, current := make([]int, sum), make([]int, len(weights))
	for i := range round {
		best := 0
		for n, w := range weights {
			current[n] += w
			if current[n] > current[best] {
				best = n
			}
		}
		current[best] -= sum
		round[i] = best
	}
	return round
}

// reduced returns the smallest weights with the same proportion. If a round would be longer than
// maxTurns, the proportion is only approximate.
func reduced(weights []int) []int {
	divisor, sum := 0, 0
	for _, w := range weights {
		divisor = gcd(divisor, w)
		sum += w
	}
	small := make([]int, len(weights))
	for i, w := range weights {
		small[i] = w / divisor
		if sum/divisor > maxTurns {
			small[i] = max(1, (w*maxTurns+sum/2)/sum)
		}
	}
	return small
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}
