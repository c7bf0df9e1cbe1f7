package proxy_test

import (
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

const getFill = "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n"

// A new connection keeps its time for a first request, parked or not.
func TestDrainWaitsForTheFirstRequestOfANewConnection(t *testing.T) {
	simBubble(t, func(t *testing.T) {
		for _, age := range []time.Duration{simPark / 2, 2 * simPark} {
			s := newSimProxy(t, nil)
			c := s.dial()
			time.Sleep(age)
			synctest.Wait()
			n := s.p.Counts().Serving
			testsupport.True(t, (n == 0) == (age > simPark), "%d connections are served after %v", n, age)
			drained := make(chan int, 1)
			go func() { drained <- s.p.Drain(t.Context()) }()
			time.Sleep(time.Second - age - tick) // the time for a first request is almost over
			c.exchange(getFill, simResponse{status: http.StatusOK})
			cut := <-drained
			testsupport.True(t, cut == 0 && c.Closed(), "%d cut; the connection is closed: %v", cut, c.Closed())
			c.Release()
			s.close()
		}
	})
}

// A parked connection on which a request arrived before the close is served, however late its
// goroutine runs.
func TestDrainServesRequestsThatWakeParkedClients(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	var clients []net.Conn
	for range 64 {
		c := m.dial()
		sendAndRead(t, c, getFill, http.StatusOK)
		clients = append(clients, c)
	}
	m.awaitParked()
	for _, c := range clients {
		send(t, c, getFill)
	}
	testsupport.Equal(t, m.p.Drain(t.Context()), 0, "%d cut")
	for _, c := range clients {
		sendAndRead(t, c, "", http.StatusOK)
	}
}

// A Serve that begins after Drain must end at once, since nothing would stop its listener.
func TestServeAfterDrainEnds(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, respondsWith("a", 204))
	m.p.Drain(t.Context())
	l := testsupport.Listen(t)
	testsupport.NoError(t, m.p.Serve(l))
}
