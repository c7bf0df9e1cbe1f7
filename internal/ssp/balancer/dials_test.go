package balancer

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// weighted returns an SSP whose endpoints a, b, … have these weights, and whose first turn is the first of a round.
func weighted(weights ...int) *ssp {
	s := start(func(o *Settings) {
		for i, w := range weights {
			o.Endpoints = append(o.Endpoints, Options{Name: names[i], Weight: w})
		}
	})
	s.turns.position = 0
	return s
}

func noConns(*Endpoint) int { return 0 }

// dial returns the endpoint of a dial for a waiting request.
func (s *ssp) dial() *Endpoint { return s.DialOrder(true, noConns)[0] }

func (s *ssp) dials(n int) string {
	var all strings.Builder
	for range n {
		all.WriteString(s.dial().Name)
	}
	return all.String()
}

// A dial for a waiting request ends a turn, as a request on an idle connection does.
func TestDialsUseTurns(t *testing.T) {
	s := weighted(3, 1)
	testsupport.Equal(t, s.dials(8), "aabaaaba", "the dials went to %s")
	for range 2 { // requests on idle connections
		s.UseTurn()
	}
	testsupport.Equal(t, s.dials(2), "ba", "after half a round of requests the dials went to %s")
}

// A request that got its place without a turn uses the next turn of its endpoint. A turn without a request is made up.
func TestDialsMakeUpForRequestsWithoutTurns(t *testing.T) {
	s := weighted(1, 1)
	a, b := s.all[0], s.all[1]
	s.Served(a, 2, 0)
	testsupport.Equal(t, s.dials(4), "bbab", "while a was ahead by two requests, the dials went to %s")
	s.Served(b, 0, 2)
	testsupport.Equal(t, s.dials(4), "bbab", "while b was behind by two requests, the dials went to %s")
	s.Served(a, 1000, 0)
	testsupport.Equal(t, s.dials(10), "bbbbbbbbab", "while a was ahead by a thousand requests, of which eight count, the dials went to %s")
	two := weighted(2, 1)
	two.Served(two.all[0], 1000, 0)
	testsupport.Equal(t, two.all[0].ahead, 16, "eight rounds of two turns are %d")
	two = weighted(2, 1)
	two.Served(two.all[0], 6, 0)
	two.Served(two.all[1], 2, 0)
	order := two.DialOrder(false, noConns)
	testsupport.Equal(t, order[0].Name, "b", "while a was ahead by three rounds and b by two, a dial ahead went to %s")
	s.Served(a, 5, 0)
	s.Served(b, 5, 0)
	testsupport.Equal(t, s.dials(4), "abab", "while both were ahead by as much, the dials went to %s")
}

// Only a change of the endpoints clears what the balancer knows of dials: an endpoint that returns has none to
// catch up on.
func TestEndpointThatReturnsIsNotBehind(t *testing.T) {
	s := weighted(1, 1)
	s.Served(s.all[0], 8, 0)
	s.SetUnreachable(s.all[1], true, s.now)
	testsupport.Equal(t, s.dials(2), "aa", "while b is unreachable, the dials went to %s")
	s.SetUnreachable(s.all[1], false, s.now)
	s.turns.position = 0
	testsupport.Equal(t, s.dials(4), "abab", "after b returned, the dials went to %s")
}

// Dials that no request waits for go to the least crowded endpoint, then to endpoints of a later priority.
func TestDialsAheadGoToTheLeastCrowdedEndpoint(t *testing.T) {
	s := weighted(3, 1, 1)
	s.all[2].Priority = 1
	s.rebuild(s.now)
	conns := map[string]int{}
	var order []string
	for range 8 {
		all := s.DialOrder(false, func(e *Endpoint) int { return conns[e.Name] })
		testsupport.MustEqual(t, fmt.Sprint(len(all), all[2].Name), "3c", "the dial may go to %s")
		conns[all[0].Name]++
		order = append(order, all[0].Name)
	}
	testsupport.Equal(t, strings.Join(order, ""), "aaabaaab", "the dials went to %s")
}

// However requests are served, each endpoint has its share of them and of the dials, within the bound.
func TestRequestsAndDialsTogetherHoldTheShares(t *testing.T) {
	for range 50 {
		weights := []int{1 + rand.IntN(5), 1 + rand.IntN(5), 1 + rand.IntN(5), 1 + rand.IntN(5)}
		s := weighted(weights...)
		got, n := make([]int, len(weights)), 0
		for ; n < 400; n++ {
			e := s.dial()
			switch r := rand.IntN(4); r {
			case 0: // another connection, of any endpoint, serves the request
				other := s.all[rand.IntN(len(s.all))]
				s.Served(other, 1, 0)
				s.Served(e, 0, 1)
				e = other
			default:
				s.Served(e, 1, 1)
			}
			got[e.Index]++
		}
		sum := 0
		for _, w := range weights {
			sum += w
		}
		for i, w := range weights {
			want := n * w / sum
			testsupport.Between(t, got[i], want-20, want+20, "of weights %[2]v, %[3]s served %[1]d of %[4]d requests", weights, names[i], n)
		}
	}
}
