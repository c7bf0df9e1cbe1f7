//go:build !race

// These campaigns are for drains what those of campaigns_test.go are for requests: TestDrainServesRequestsThatWakeParkedClients
// and the tests of package e2e look for races.

package proxy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

// drainClient is a connection on which a request arrives at about the time of a drain.
type drainClient struct {
	*simClient
	kept     bool
	arrivals []arrival // parts of the request; pause is their moment, from the beginning of the drain
	received int       // bytes that the connection had received before
	came     int       // bytes of the request that arrived while it was open
}

// A request may arrive at about the time when adbuffer drains, hands over or parks its connection.
// It gets a response, or no byte of it is read. A request that has begun to arrive before idle
// connections are closed gets a response.
func TestRequestsDuringADrainGetAResponseOrStayUnread(t *testing.T) {
	cases := sample(100)
	if *full {
		cases = 20_000
	}
	r := rand.New(rand.NewPCG(5, 6))
	pick := func(of ...time.Duration) time.Duration { return of[r.IntN(len(of))] }
	around := func(of ...time.Duration) time.Duration { return pick(of...) + pick(-tick, 0, tick) }
	simBubble(t, func(t *testing.T) {
		for range cases {
			s := newSimProxy(t, nil)
			delay := pick(0, tick, simPark, 2*time.Second) // from BeginDrain to Drain
			begin := time.Now().Add(3 * time.Second)
			events := map[time.Duration][]func(){
				0: {s.p.BeginDrain},
			}
			var clients []*drainClient
			for range 10 {
				v := &drainClient{kept: r.IntN(2) == 0}
				clients = append(clients, v)
				opened := min(around(-5*tick, -simPark, -2*simPark, -time.Second, -time.Second-simPark), -tick)
				events[opened] = append(events[opened], func() {
					v.simClient = s.dial()
					if v.kept {
						v.Arrive(simGet)
						v.wantOK()
						v.received = v.Received()
					}
				})
				at := max(around(0, simPark, delay, delay+simPark, delay+10*tick, delay+20*tick, delay+time.Second, delay+time.Second+simPark), opened+tick)
				if cut := r.IntN(2 * len(simGet)); cut > 0 && cut < len(simGet) {
					v.arrivals = []arrival{{cut, at}, {len(simGet) - cut, at + pick(tick, simPark, simRead-tick)}}
				} else {
					v.arrivals = []arrival{{len(simGet), at}}
				}
				text := simGet
				for _, a := range v.arrivals {
					part := text[:a.n]
					text = text[a.n:]
					events[a.pause] = append(events[a.pause], func() {
						if v.Arrive(part); !v.Closed() {
							v.came += len(part)
						}
					})
				}
				if r.IntN(3) == 0 { // its goroutine runs late
					events[at] = slices.Insert(events[at], len(events[at])-1, func() { v.Hold(true) })
					until := at + pick(0, tick, 2*tick, simPark, time.Second)
					events[until] = append(events[until], func() { v.Hold(false) })
				}
			}
			cut := make(chan int, 1)
			go func() {
				// This moment is between two ticks. Bytes that arrive at a tick arrive before or
				// after each check of a connection, never at the same time.
				time.Sleep(time.Until(begin.Add(delay + tick/2)))
				cut <- s.p.Drain(t.Context())
			}()
			for _, at := range slices.Sorted(maps.Keys(events)) {
				time.Sleep(time.Until(begin.Add(at)))
				for _, event := range events[at] {
					event()
					synctest.Wait()
				}
			}
			testsupport.Equal(t, <-cut, 0, "%d requests were cut")
			for _, v := range clients {
				v.check(fmt.Sprintf("kept %v, BeginDrain %v before Drain, %v", v.kept, delay, v.arrivals), v.arrivals[0].pause <= delay)
			}
			s.close()
		}
	})
}

// check compares the end of the request with the promise. early says that it began to arrive before
// idle connections were closed.
func (v *drainClient) check(name string, early bool) {
	v.t.Helper()
	got, read := v.responses(), v.Received()-v.received
	switch {
	case !v.Closed():
		v.t.Errorf("%s: the connection outlives the drain", name)
	case len(got) == 1 && got[0].status == 200 && (got[0].close || v.arrivals[len(v.arrivals)-1].pause <= 0):
	case len(got) > 0:
		v.t.Errorf("%s: %+v", name, got)
	case early || v.came > 0:
		v.t.Errorf("%s: no response, though %d bytes came while it was open, and %d were read", name, v.came, read)
	}
	v.Release()
}

// A request may arrive just after the connection's goroutine has found none. It gets a response,
// also if adbuffer drains at that moment.
func TestRequestThatArrivesRightAfterALookGetsAResponse(t *testing.T) {
	simBubble(t, func(t *testing.T) {
		came := 0
		for _, delay := range []time.Duration{0, tick, simPark - tick, simPark, simPark + tick, 2 * simPark} {
			for looks := range 5 {
				s := newSimProxy(t, nil)
				v := &drainClient{simClient: s.dial(), kept: true, arrivals: []arrival{{len(simGet), 0}}}
				v.Arrive(simGet)
				v.responses()
				v.received = v.Received()
				v.ArriveBehind(1+looks, simGet)
				time.Sleep(delay + tick/2) // no connection is parked at a moment at which the drain looks
				testsupport.Equal(t, s.p.Drain(t.Context()), 0, "%d requests were cut")
				if v.Pending() {
					v.Release() // it has not arrived: there were fewer checks
				} else {
					came++
					v.check(fmt.Sprintf("drained %v after a response, behind %d looks", delay, 1+looks), true)
				}
				s.close()
			}
		}
		t.Logf("it came %d times", came)
	})
}
