package pool

import (
	"slices"

	"adbuffer/internal/wire/exchange"
)

// aim says where a dial should go.
type aim struct {
	endpoint *endpoint // nil: the governor chooses one
	waiting  bool      // a request waits for this dial, so it goes to the endpoint whose turn it is, and the turn moves on
	isolated bool      // for a request that must share no connection, see isolation.go
}

// target is the address of a dial, and its state when the dial began.
type target struct {
	addr     exchange.Address
	endpoint *endpoint
	failures int
	onTrial  bool
	others   []exchange.Address // the dial tries these if addr fails or is slow
}

// nth returns the n-th address of the dial; 0 is the first.
func (t target) nth(n int) target {
	if n == 0 {
		return t
	}
	return target{addr: t.others[n-1], endpoint: t.endpoint}
}

// maxOthers bounds how many addresses a dial tries after its first one.
const maxOthers = 3

// othersOf returns the addresses that a dial may try if e.addrs[at] fails or is slow. The addresses
// alternate between the two IP families, and the last dial to each of them did not fail. So a
// failing address gets no more dials than the governor allows.
func (g *governor) othersOf(e *endpoint, at int) (others []exchange.Address) {
	last := e.addrs[at]
	for len(others) < maxOthers {
		other, same := -1, -1 // next index of the other family, and of the same family
		for i := len(e.addrs) - 1; i > 0; i-- {
			n := (at + i) % len(e.addrs)
			a := e.addrs[n]
			switch s := g.states[a]; {
			case s != nil && s.failures > 0, slices.Contains(others, a):
			case a.AddrPort.Addr().Is4() == last.AddrPort.Addr().Is4():
				same = n
			default:
				other = n
			}
		}
		if other < 0 {
			other = same
		}
		if other < 0 {
			break
		}
		last = e.addrs[other]
		others = append(others, last)
	}
	return others
}
