//go:build !race

package proxy_test

// These campaigns compare what clients get with what they must get, in hundreds of histories. The race detector would
// make them take six times as long, and find no more than in the other tests of simulated clients.

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/cpushare"
)

// A connection has any history, and its request is cut at any byte. Bytes that arrive before their
// deadline are never refused for their time. If they have not arrived by then, the request is
// refused at that moment.
func TestRequestsAreHeldToTheirOwnDeadlinesAlone(t *testing.T) {
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, nil)
		defer s.close()
		s.runAll(415 / sample(5))
	})
	t.Run("TLS", func(t *testing.T) {
		simBubble(t, func(t *testing.T) {
			s := newSimProxy(t, func(o *proxy.Options) { overTLS(o, nil) })
			defer s.close()
			s.runAll(4315 / sample(5))
		})
	})
}

// runAll runs every n-th case: each history, each request cut anywhere, with each
// pause. With -full it runs them all.
func (s *simProxy) runAll(n int) {
	pauses := []time.Duration{0, tick}
	for _, timeout := range []time.Duration{simPark, simWrite, simRead, simIdle} {
		pauses = append(pauses, timeout-tick, timeout, timeout+tick)
	}
	i, ran := 0, 0
	for _, history := range slices.Sorted(maps.Keys(simHistories)) {
		for _, m := range simMessages {
			length := len(m.head + m.body)
			if s.overTLS {
				length += recordOverhead
			}
			for cut := range length {
				for _, pause := range pauses {
					if i++; !*full && i%n != 0 {
						continue
					}
					parts := []arrival{{cut, 0}, {length - cut, pause}}
					if cut == 0 {
						parts = parts[1:]
					}
					ran++
					s.run(simCase{history, m.head, m.body, m.want, parts, ran%2 == 0})
				}
			}
		}
	}
	s.t.Logf("%d of %d cases", ran, i)
}

// The same holds for requests in many parts, at random.
func TestRequestsInManyPartsAreHeldToTheirOwnDeadlinesAlone(t *testing.T) {
	cases := sample(500)
	if *full {
		cases = 200_000
	}
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, nil)
		defer s.close()
		r := rand.New(rand.NewPCG(1, 2))
		for range cases {
			m := simMessages[r.IntN(len(simMessages))]
			var parts []arrival
			for left := len(m.head + m.body); left > 0; {
				n := 1 + r.IntN(left)
				if r.IntN(3) == 0 {
					n = left
				}
				pause := []time.Duration{0, 0, tick, simPark, simRead / 2, simRead - tick, simRead, simRead + tick, simIdle - tick}[r.IntN(9)]
				parts = append(parts, arrival{n, pause})
				left -= n
			}
			s.run(simCase{"kept", m.head, m.body, m.want, parts, false})
		}
	})
}

// Pipelined requests get responses in their order, wherever they are cut, and however slow their
// SSPs are.
func TestPipelinedRequestsGetResponsesHoweverTheyArrive(t *testing.T) {
	cases := sample(500)
	if *full {
		cases = 50_000
	}
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, nil)
		defer s.close()
		r := rand.New(rand.NewPCG(3, 4))
		for range cases {
			var all string
			var want []simResponse
			for range 2 + r.IntN(4) {
				m := simMessages[r.IntN(len(simMessages))]
				if r.IntN(3) == 0 {
					all += strings.Replace(m.head, "/fill", "/fill?delay=900", 1) + m.body
				} else {
					all += m.head + m.body
				}
				want = append(want, simResponse{200, m.want, false})
			}
			pause := []time.Duration{0, tick, simPark - tick, simPark, simPark + tick, simWrite, simRead - tick}[r.IntN(7)]
			c := s.dial()
			cuts := []int{0, r.IntN(len(all)), r.IntN(len(all)), len(all)}
			slices.Sort(cuts)
			c.Arrive(all[:cuts[1]])
			synctest.Wait()
			c.Arrive(all[cuts[1]:cuts[2]])
			time.Sleep(pause)
			c.Arrive(all[cuts[2]:])
			time.Sleep(5 * time.Second) // the time that the SSPs take
			got := c.responses()
			testsupport.MustTrue(t, slices.Equal(got, want), "%q cut at %v, with %v behind the second: %+v, want %+v", all, cuts, pause, got, want)
			c.exchange(simGet, simResponse{status: 200})
			c.Release()
		}
	})
}

// A client has write_timeout to read each response, for any history.
func TestResponsesAreHeldToTheirOwnDeadlinesAlone(t *testing.T) {
	simBubble(t, func(t *testing.T) {
		for _, change := range []func(*proxy.Options){nil, func(o *proxy.Options) { overTLS(o, nil) }} {
			s := newSimProxy(t, change)
			for name, history := range simHistories {
				for _, request := range []string{simGet, strings.Replace(simGet, "/fill", "/fill?big=50000", 1)} {
					for _, pause := range []time.Duration{tick, simPark, simWrite - tick, simWrite + tick, simRead} {
						c := s.dial()
						synctest.Wait()
						history(c)
						for range 2 {
							c.Stall(true)
							c.say(request)
							time.Sleep(pause)
							c.Stall(false)
							time.Sleep(tick)
							got := c.responses()
							if pause > simWrite {
								testsupport.MustTrue(t, len(got) == 0 && c.Closed(), "%s: %+v to a client that took nothing for %v, closed %v", name, got, pause, c.Closed())
								break
							}
							testsupport.MustTrue(t, len(got) == 1 && got[0].status == 200, "%s: %+v to a client that took nothing for %v", name, got, pause)
						}
						c.Release()
					}
				}
			}
			s.close()
		}
	})
}

// addressed is a socket whose peer has an IP address.
type addressed struct {
	*testsupport.SimulatedSocket
	peer string
}

func (a addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.peer)} }

// An attacker from another network reopens all places again and again. A client that has connected, in
// whatever stage it is, keeps its connection, and a new client gets a place.
func TestAClientOutlivesConnectionsOfAnotherNetwork(t *testing.T) {
	const places = 8
	group := func(a string) cpushare.Party { return cpushare.PartyOf(netip.MustParseAddr(a)) % 256 }
	const honest = "192.0.2.1"
	attacker := "198.51.100.1"
	for i := 2; group(attacker) == group(honest); i++ {
		attacker = fmt.Sprintf("198.51.%d.1", i)
	}
	// With pauses of at most 20 ms all connections of the attacker may still be about to send a request when the next
	// one comes, with pauses of 600 ms only the last one may. A client that is silent for 24 pauses of 20 ms is parked,
	// and counts as idle.
	for _, pause := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 600 * time.Millisecond} {
		for _, stage := range []string{"silent", "handshake", "idle", "new"} {
			t.Run(fmt.Sprint(stage, " ", pause), func(t *testing.T) {
				simBubble(t, func(t *testing.T) {
					s := newSimProxy(t, func(o *proxy.Options) {
						overTLS(o, nil)
						o.MaxConnections, o.ReadTimeout, o.IdleTimeout = places, time.Minute, time.Minute
					})
					defer s.close()
					connect := func(from string) *simClient {
						c := &simClient{SimulatedSocket: testsupport.NewSimulatedSocket(t), t: t}
						s.l.accept <- addressed{c.SimulatedSocket, from}
						synctest.Wait()
						return c
					}
					var client *simClient
					if stage != "new" {
						client = connect(honest)
					}
					if stage == "handshake" || stage == "idle" {
						client.shakeHands()
					}
					if stage == "idle" {
						client.say(getFill)
						time.Sleep(simPark + tick)
						client.wantOK()
					}
					var all []*simClient
					for range 3 * places {
						c := connect(attacker)
						if !c.Closed() { // it was not refused
							c.shakeHands()
						}
						all = append(all, c)
						time.Sleep(pause)
					}
					if stage == "new" {
						client = connect(honest)
					}
					if stage == "silent" || stage == "new" {
						client.shakeHands()
					}
					client.say(getFill)
					time.Sleep(tick)
					client.wantOK()
					open := 1
					for _, c := range all {
						if !c.Closed() {
							open++
						}
						c.End()
					}
					testsupport.Equal(t, open, places, "%d connections are open, want 8")
					client.End()
				})
			})
		}
	}
}
