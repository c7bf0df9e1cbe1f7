package proxy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// overProtocol is how the clients of a test connect. finish returns a connection that is ready for
// HTTP.
type overProtocol struct {
	change func(*proxy.Options, *route.Route)
	proxy  bool // behind the PROXY protocol
	finish func(m *modeProxy, c net.Conn) net.Conn
}

const proxyHeader = "PROXY TCP4 203.0.113.9 192.0.2.1 4000 443\r\n"

var (
	inCleartext = overProtocol{change: h2c, finish: func(_ *modeProxy, c net.Conn) net.Conn { return c }}
	inTLS       = overProtocol{change: overTLS, finish: func(_ *modeProxy, c net.Conn) net.Conn { return tlsOver(c, "http/1.1") }}
	inPROXY     = overProtocol{change: overTLS, proxy: true, finish: func(m *modeProxy, c net.Conn) net.Conn {
		send(m.t, c, proxyHeader)
		return tlsOver(c, "http/1.1")
	}}
)

func tlsOver(c net.Conn, protocol string) *tls.Conn { return tls.Client(c, clientTLS(protocol)) }

// newFullProxy returns a proxy with few places for connections.
func newFullProxy(t *testing.T, over overProtocol, places int) *modeProxy {
	m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
		over.change(o, rt)
		o.MaxConnections = places
	}, bids("a", "{}"))
	if over.proxy {
		m.serveBehindPROXYHeaders()
	}
	return m
}

// honest connects a client and makes a request.
func (m *modeProxy) honest(over overProtocol) net.Conn {
	m.t.Helper()
	c := over.finish(m, m.dial())
	askHTTP1(m.t, c)
	return c
}

// awaitReading waits until n connections wait for the rest of a handshake or head.
func (m *modeProxy) awaitReading(n int) {
	m.t.Helper()
	testsupport.Eventually(m.t, fmt.Sprintf("%d connections wait for their clients", n), func() bool { return m.p.Counts().Waiting == n })
}

// unfinishedKinds are connections that wait for the rest of a PROXY header, a TLS handshake or a
// head.
var unfinishedKinds = []struct {
	name  string
	over  overProtocol
	stage string
	begin func(m *modeProxy, c net.Conn)
}{
	{"silent", inCleartext, "head", func(*modeProxy, net.Conn) {}},
	{"a byte of a head", inCleartext, "head", func(m *modeProxy, c net.Conn) { send(m.t, c, "G") }},
	{"a byte of a second head", inCleartext, "head", func(m *modeProxy, c net.Conn) {
		askHTTP1(m.t, c)
		send(m.t, c, "G")
	}},
	{"preface of HTTP/2 in cleartext", inCleartext, "head", func(m *modeProxy, c net.Conn) { send(m.t, c, http2.ClientPreface) }},
	{"silent, PROXY", inPROXY, "handshake", func(*modeProxy, net.Conn) {}},
	{"part of a PROXY header", inPROXY, "handshake", func(m *modeProxy, c net.Conn) { send(m.t, c, "PROXY TCP4 ") }},
	{"PROXY header", inPROXY, "handshake", func(m *modeProxy, c net.Conn) { send(m.t, c, proxyHeader) }},
	{"silent, TLS", inTLS, "handshake", func(*modeProxy, net.Conn) {}},
	{"part of a ClientHello", inTLS, "handshake", func(m *modeProxy, c net.Conn) { send(m.t, c, "\x16\x03\x01\x02\x00\x01") }},
	{"handshake", inTLS, "head", func(m *modeProxy, c net.Conn) { shakeHands(m, c, "http/1.1") }},
	{"a byte of a head, TLS", inTLS, "head", func(m *modeProxy, c net.Conn) { send(m.t, shakeHands(m, c, "http/1.1"), "G") }},
	{"a byte of a second record", inTLS, "head", func(m *modeProxy, c net.Conn) {
		askHTTP1(m.t, shakeHands(m, c, "http/1.1"))
		send(m.t, c, "\x17")
	}},
	{"handshake of HTTP/2", inTLS, "head", func(m *modeProxy, c net.Conn) { shakeHands(m, c, "h2") }},
	{"PING before a request", inTLS, "head", func(m *modeProxy, c net.Conn) {
		over := shakeHands(m, c, "h2")
		send(m.t, over, http2.ClientPreface)
		http2.NewFramer(over, over).WriteSettings()
		pingHTTP2(m.t, over)
	}},
	{"half a header block", inTLS, "head", func(m *modeProxy, c net.Conn) {
		s := newStreamClient(shakeHands(m, c, "h2"))
		s.frame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, s.block[:len(s.block)/2])
		send(m.t, s.conn, string(s.out))
	}},
	{"a byte of a frame behind a request", inTLS, "head", func(m *modeProxy, c net.Conn) {
		s := newStreamClient(shakeHands(m, c, "h2"))
		s.request()
		s.readResponses(m.t, 1)
		send(m.t, s.conn, "\x00")
	}},
}

func shakeHands(m *modeProxy, c net.Conn, protocol string) *tls.Conn {
	m.t.Helper()
	over := tlsOver(c, protocol)
	testsupport.NoError(m.t, over.Handshake())
	return over
}

// Connections without a complete handshake or head must neither push out idle clients, if they have never sent a
// request, nor take all places, so that other clients are refused.
func TestUnfinishedConnectionsMakeRoomForOthers(t *testing.T) {
	testsupport.Long(t)
	const places, idle, honest = 8, 3, 2
	for _, kind := range unfinishedKinds {
		t.Run(kind.name, func(t *testing.T) {
			m := newFullProxy(t, kind.over, places)
			all := m.connectMany(idle, func(m *modeProxy) net.Conn { return m.honest(kind.over) })
			for i := range places {
				kind.begin(m, m.dial())
				m.awaitReading(min(i+1, places-idle))
			}
			for range honest {
				all = append(all, m.honest(kind.over))
			}
			for _, c := range all {
				askHTTP1(t, c)
			}
			open, unfinished, dropped := m.series(openClients, ""), m.series(clientsDropped, kind.stage), m.series(clientsDropped, "idle")
			testsupport.True(t, open == places && unfinished == idle+honest && dropped == 0, "%v connections are open; %v unfinished and %v idle ones were dropped", open, unfinished, dropped)
		})
	}
}

// The oldest unfinished connection closes: a client whose handshake has just begun outlives older connections.
func TestAHandshakeThatHasJustBegunOutlivesOlderConnections(t *testing.T) {
	const places = 8
	for stage, over := range map[string]overProtocol{"head": inCleartext, "handshake": inTLS} {
		t.Run(stage, func(t *testing.T) {
			m := newFullProxy(t, over, places)
			m.connectMany(places, (*modeProxy).dial)
			m.awaitReading(places)
			slow := m.dial()
			for i := range places - 1 {
				m.dial()
				m.await(float64(i+2), clientsDropped, stage)
			}
			askHTTP1(t, over.finish(m, slow))
		})
	}
}

// A head that makes room gets a response that says so.
func TestAHeadThatMakesRoomGets408(t *testing.T) {
	for name, over := range map[string]overProtocol{"cleartext": inCleartext, "TLS": inTLS} {
		t.Run(name, func(t *testing.T) {
			m := newFullProxy(t, over, 1)
			slow := m.honest(over)
			send(m.t, slow, "GET ")
			m.awaitReading(1)
			m.honest(over)
			body := sendAndRead(t, slow, "", 408)
			testsupport.True(t, strings.Contains(body, "see server.max_connections"), "body: %s", body)
			m.await(0, "adbuffer_in_flight_requests", "")
			testsupport.Equal(t, m.seriesOf("adbuffer_requests_total", "bad_request", "none"), 1, "%v requests ended as bad_request")
		})
	}
}

// While there are few unfinished connections, each of them has a second to complete its handshake or head. Until
// then the connection that has been idle for longest closes.
func TestFewUnfinishedConnectionsHaveASecond(t *testing.T) {
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, func(o *proxy.Options) { o.MaxConnections = 8 })
		defer s.close()
		dial := func() *simClient {
			c := s.dial()
			synctest.Wait()
			return c
		}
		closed := func(all ...*simClient) (which []int) {
			for i, c := range all {
				if c.Closed() {
					which = append(which, i)
				}
			}
			return which
		}
		var idle []*simClient
		for range 6 {
			c := dial()
			c.say("GET /fill HTTP/1.1\r\nHost: a\r\n\r\n")
			time.Sleep(tick)
			idle = append(idle, c)
		}
		time.Sleep(simPark + tick)
		unfinished := []*simClient{dial(), dial()}
		time.Sleep(time.Second - tick)
		unfinished = append(unfinished, dial())
		if u, i := fmt.Sprint(closed(unfinished...)), fmt.Sprint(closed(idle...)); u != "[]" || i != "[0]" {
			t.Errorf("within a second: unfinished ones %s and idle ones %s were dropped", u, i)
		}
		unfinished[2].say("GET /fill HTTP/1.1\r\nHost: a\r\n\r\n") // two are left, a quarter
		time.Sleep(tick)
		dial()
		u, i := fmt.Sprint(closed(unfinished...)), fmt.Sprint(closed(idle...))
		testsupport.True(t, u == "[0]" && i == "[0]", "after a second: unfinished ones %s and idle ones %s were dropped", u, i)
	})
}

// If no client is idle, the oldest unfinished connection goes, however young it is.
func TestAYoungConnectionMakesRoomIfNoClientIsIdle(t *testing.T) {
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, func(o *proxy.Options) { o.MaxConnections = 8 })
		defer s.close()
		for range 6 {
			s.dial().say("GET /fill?delay=1000 HTTP/1.1\r\nHost: a\r\n\r\n")
		}
		synctest.Wait()
		unfinished := []*simClient{s.dial(), s.dial()}
		synctest.Wait()
		next := s.dial()
		next.say(getFill)
		time.Sleep(tick)
		got := next.responses()
		testsupport.True(t, len(got) == 1 && got[0].status == 200 && unfinished[0].Closed() && !unfinished[1].Closed(), "responses %+v", got)
		time.Sleep(time.Second)
	})
}

// A client whose request has arrived makes no room, even if adbuffer has had no time to read it.
func TestARequestThatIsUnreadMakesNoRoom(t *testing.T) {
	for name, since := range map[string]time.Duration{"new": 0, "parked": simPark + tick} {
		t.Run(name, func(t *testing.T) {
			simBubble(t, func(t *testing.T) {
				s := newSimProxy(t, func(o *proxy.Options) {
					overTLS(o, nil)
					o.MaxConnections = 1
				})
				defer s.close()
				c := s.dial()
				time.Sleep(since)
				synctest.Wait()
				c.Hold(true)
				c.say(getFill)
				s.overTLS = false // no handshake
				refused := s.dial()
				synctest.Wait()
				testsupport.True(t, refused.Closed() && !c.Closed(), "a connection whose request has arrived made room")
				c.Hold(false)
				time.Sleep(tick)
				c.wantOK()
				refused.End()
				c.End()
			})
		})
	}
}

// A client has half a second for its next part of a handshake on which adbuffer has spent CPU time.
// Without it, clients that connect faster than adbuffer computes would push out each other.
func TestAHandshakeInProgressMakesNoRoomForHalfASecond(t *testing.T) {
	simBubble(t, func(t *testing.T) {
		s := newSimProxy(t, func(o *proxy.Options) {
			overTLS(o, nil)
			o.MaxConnections = 1
		})
		defer s.close()
		s.overTLS = false // dial begins no handshake
		slow := s.dial()
		slow.tls = &simTLS{simClient: slow}
		hello := make(chan struct{})
		var shaking sync.WaitGroup
		shaking.Go(func() {
			over := tls.Client(&pausing{simTLS: slow.tls, paused: hello}, &tls.Config{RootCAs: newIdentity().roots, ServerName: "adbuffer.test", Time: simTLSTime})
			if err := over.Handshake(); err != nil {
				t.Error(err)
			}
			slow.tls.shaken = true
		})
		<-hello // the server's part of the handshake has arrived
		synctest.Wait()
		refused := s.dial()
		synctest.Wait()
		testsupport.True(t, refused.Closed() && !slow.Closed(), "a handshake in progress made room")
		shaking.Wait()
		time.Sleep(500 * time.Millisecond)
		next := s.dial()
		synctest.Wait()
		testsupport.True(t, !next.Closed() && slow.Closed(), "a client that did not continue made no room")
		for _, c := range []*simClient{refused, slow, next} {
			c.End()
		}
	})
}

// pausing is a client that waits for 400 ms before its second part of a handshake.
type pausing struct {
	*simTLS
	paused chan struct{}
	writes int
}

func (c *pausing) Write(b []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		close(c.paused)
		time.Sleep(400 * time.Millisecond)
	}
	return c.simTLS.Write(b)
}

// Clients begin, continue and abandon connections at random while places are few. A client that
// does not hesitate is served or refused, and no place is lost.
func TestUnfinishedConnectionsAtRandomLoseNoPlace(t *testing.T) {
	testsupport.Long(t)
	for name, over := range map[string]overProtocol{"cleartext": inCleartext, "TLS": inTLS} {
		t.Run(name, func(t *testing.T) {
			m := newFullProxy(t, over, 10)
			var clients sync.WaitGroup
			for i := range 20 {
				clients.Go(func() {
					dice := rand.New(rand.NewPCG(1, uint64(i)))
					for range 10 {
						c, err := net.Dial("tcp", m.addr())
						if err != nil {
							t.Error(err)
							return
						}
						pause := func() { time.Sleep(time.Duration(dice.IntN(12_000)) * time.Microsecond) }
						pause()
						if dice.IntN(3) > 0 {
							c = over.finish(m, c)
						}
						for range dice.IntN(3) {
							io.WriteString(c, getFill[:9])
							pause()
							io.WriteString(c, getFill[9:])
							pause()
						}
						c.Close()
					}
				})
			}
			clients.Wait()
			m.await(0, openClients, "")
			testsupport.Eventually(t, "no socket is left", func() bool { return socketsOf(t, m.addr()) == 0 })
			testsupport.Equal(t, m.p.Counts().Unfinished, 0, "%d closed connections are kept")
			askHTTP1(t, over.finish(m, m.dial()))
			testsupport.Equal(t, m.p.Drain(context.Background()), 0, "%d requests were cut")
		})
	}
}
