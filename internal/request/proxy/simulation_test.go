package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
)

// full runs the campaigns of this package completely: go test ./internal/request/proxy -full. Without it
// they run a sample that is always the same.
var full = flag.Bool("full", false, "run campaigns as a whole")

// sample returns how many of n random cases a run without -full has: a fifth with -short.
func sample(n int) int {
	if testing.Short() {
		return n / 5
	}
	return n
}

// The timeouts of the simulation, all different.
const (
	simIdle  = 10 * time.Second
	simRead  = 3 * time.Second
	simWrite = 2 * time.Second
	simPark  = 200 * time.Millisecond
	tick     = time.Millisecond
)

// simSSP responds with the method and the body of the request. In the query, delay=300 delays the
// response by 300 ms, and big=1000 sets the size of its body.
type simSSP struct {
	note  func(*exchange.Request) // is called for each request; may be nil
	terse bool                    // its responses have no body
}

func (*simSSP) Addresses(context.Context) ([]exchange.Address, error) {
	return []exchange.Address{{Endpoint: exchange.Endpoint{Authority: "ssp.example"}, AddrPort: netip.MustParseAddrPort("192.0.2.1:80")}}, nil
}

func (s *simSSP) Dial(_ context.Context, _ exchange.Address, _ []exchange.Address, _ bool, owner exchange.Owner) (pool.Dialed, error) {
	return pool.Dialed{Conn: &simSSPConn{ssp: s, owner: owner}}, nil
}

type simSSPConn struct {
	ssp    *simSSP
	owner  exchange.Owner
	reason exchange.CloseReason
}

func (c *simSSPConn) Do(ex *exchange.Exchange) error {
	if c.ssp.note != nil {
		c.ssp.note(&ex.Request)
	}
	number := func(key string) int {
		_, value, _ := bytes.Cut(ex.Request.Target, []byte("?"+key+"="))
		n, _ := strconv.Atoi(string(value))
		return n
	}
	delay, big := number("delay"), number("big")
	time.Sleep(time.Duration(delay) * time.Millisecond)
	var body string
	if !c.ssp.terse {
		body = fmt.Sprintf("%s %q", ex.Request.Method, ex.Request.Body) + strings.Repeat("x", big)
	}
	ex.Response.Status, ex.Response.ContentLength = 200, len(body)
	ex.Response.Body = append(ex.Response.Body, body...)
	c.owner.Freed(time.Since(ex.Times.Acquired), ex.Ticket)
	return nil
}

func (c *simSSPConn) Protocol() exchange.Protocol       { return exchange.HTTP1 }
func (c *simSSPConn) Places() int                       { return 1 }
func (c *simSSPConn) Idle() bool                        { return true }
func (c *simSSPConn) Close(why exchange.CloseReason)    { c.reason = why }
func (c *simSSPConn) CloseReason() exchange.CloseReason { return c.reason }
func (*simSSPConn) IdleLimit() time.Duration            { return exchange.NoIdleLimit }

// simListener accepts the clients' sockets.
type simListener struct {
	accept chan net.Conn
	closed chan struct{}
}

func (l *simListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *simListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *simListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// simProxy is a proxy in a bubble.
type simProxy struct {
	t      testing.TB
	p      *proxy.Proxy
	ssp    *simSSP
	pool   *pool.Pool
	l      *simListener
	served chan error

	overTLS bool
}

func newSimProxy(t testing.TB, change func(*proxy.Options)) *simProxy {
	t.Helper()
	s := &simProxy{t: t, ssp: new(simSSP), l: &simListener{make(chan net.Conn), make(chan struct{})}, served: make(chan error, 1)}
	s.pool = pool.New(pool.Options{
		SSP: "a", MaxConns: 64, MaxHTTP2Conns: 1, MaxIdle: 64, MaxPending: 1000, PendingTimeout: time.Minute, MaxDials: 4,
		BackoffMin: time.Millisecond, BackoffMax: time.Millisecond, ConnectTimeout: time.Minute, Protocol: exchange.HTTP1, MaxStreams: 1,
	}, s.ssp)
	so := ssp.Options{Name: "a", Scheme: "http", Path: "/bid", Policy: header.NewPolicy(header.PolicyOptions{}), MaxBufferedBytes: 1 << 24}
	rt := &route.Route{Name: "r", Match: route.Match{Path: "/fill"}, Mode: route.Single, Targets: []route.Target{{SSP: ssp.New(so, s.pool), Weight: 1}}}
	o := proxy.Options{
		Options: http1.Options{
			MaxConnections: 1000, MaxStreams: 250, MaxBufferedBytes: 1 << 24, ReadTimeout: simRead, WriteTimeout: simWrite, IdleTimeout: simIdle,
			MaxHeaderBytes: 2048, MaxBodyBytes: 1 << 18, AbortOnClose: true,
		},
		MaxInFlight: 1000, MaxUploads: 1000, ErrorDetail: true, Deadline: proxy.DeadlineOptions{Default: 30 * time.Second, Max: time.Minute},
	}
	if change != nil {
		change(&o)
	}
	s.overTLS = o.TLS != nil
	s.p = proxy.New(o, route.NewTable([]*route.Route{rt}), zap.NewNop(), nil, func() bool { return true })
	go func() { s.served <- s.p.Serve(s.l) }()
	return s
}

// close drains the proxy, and checks that no resource is left in use.
func (s *simProxy) close() {
	s.t.Helper()
	testsupport.Equal(s.t, s.p.Drain(s.t.Context()), 0, "%d requests were cut")
	testsupport.NoError(s.t, <-s.served)
	s.pool.Close(s.t.Context())
	snap := s.p.Snapshot()
	testsupport.True(s.t, snap.Clients == 0 && snap.InFlight == 0 && snap.Uploads == 0 && snap.BufferedBytes == 0, "left at the end: %+v", snap)
}

// simClient is a client of a simProxy.
type simClient struct {
	*testsupport.SimulatedSocket
	t   testing.TB
	got string  // bytes that the proxy has sent and that were not parsed yet
	tls *simTLS // nil for cleartext
}

func (s *simProxy) dial() *simClient {
	c := &simClient{SimulatedSocket: testsupport.NewSimulatedSocket(s.t), t: s.t}
	s.l.accept <- c.SimulatedSocket
	if s.overTLS {
		c.shakeHands()
	}
	return c
}

// wire returns the bytes of text on the wire.
func (c *simClient) wire(text string) string {
	if c.tls != nil {
		return c.tls.seal(text)
	}
	return text
}

// say sends text.
func (c *simClient) say(text string) { c.Arrive(c.wire(text)) }

// simResponse is a complete response.
type simResponse struct {
	status int
	body   string
	close  bool
}

// responses returns the responses that have arrived.
func (c *simClient) responses() (all []simResponse) {
	take := c.Take
	if c.tls != nil {
		take = c.tls.open
	}
	synctest.Wait()
	for more := take(); more != ""; more = take() {
		c.got += more
		synctest.Wait() // the proxy may write more now
	}
	for {
		in := strings.NewReader(c.got)
		r := bufio.NewReader(in)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			return all
		}
		if res.StatusCode == http.StatusContinue {
			c.got = c.got[len(c.got)-in.Len()-r.Buffered():]
			continue
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			return all
		}
		c.got = c.got[len(c.got)-in.Len()-r.Buffered():]
		all = append(all, simResponse{res.StatusCode, string(body), res.Close})
	}
}

// wantOK checks that one response has arrived, a 200.
func (c *simClient) wantOK() {
	c.t.Helper()
	got := c.responses()
	testsupport.MustTrue(c.t, len(got) == 1 && got[0].status == 200, "responses %+v, want a 200", got)
}

// exchange sends a request and reads its response.
func (c *simClient) exchange(request string, want simResponse) {
	c.t.Helper()
	c.say(request)
	time.Sleep(time.Second)
	got := c.responses()
	testsupport.MustTrue(c.t, len(got) == 1 && got[0].status == want.status && strings.HasPrefix(got[0].body, want.body), "responses %+v, want %+v", got, want)
}

// firstConnection makes a connection outside all bubbles, since fasthttp starts a goroutine with its first one that
// never ends.
var firstConnection sync.Once

// simBubble runs test in a synctest bubble, in which connections over TLS are possible.
func simBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	outside := time.Now()
	simTLSTime = func() time.Time { return outside }
	newIdentity()
	firstConnection.Do(func() { newModeProxy(t, route.Single, nil, bids("a", "{}")).do("GET", "/fill") })
	testsupport.Bubble(t, func(t *testing.T) {
		test(t)
		time.Sleep(time.Minute) // a goroutine of fasthttp's server sleeps for ten seconds
	})
}

// simMessages are the requests under test: where the head ends, and the expected response.
var simMessages = []struct {
	name, head, body string
	want             string
}{
	{"GET", "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n", "", `GET ""`},
	{"HTTP/1.0", "GET /fill HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "", `GET ""`},
	{"fixed", "POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "hello", `POST "hello"`},
	{"chunked", "POST /fill HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nT: x\r\n\r\n", `POST "hello"`},
	{"expect", "POST /fill HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", "hello", `POST "hello"`},
	{"empty lines", "\r\n\r\nGET /fill HTTP/1.1\r\nHost: a\r\n\r\n", "", `GET ""`},
}

const simGet = "GET /fill HTTP/1.1\r\nHost: a\r\n\r\n"

// simHistories are the earlier events on a connection, before the request under test.
var simHistories = map[string]func(c *simClient){
	"fresh": func(*simClient) {},
	"kept":  func(c *simClient) { c.exchange(simGet, simResponse{status: 200}) },
	"parked": func(c *simClient) {
		c.exchange(simGet, simResponse{status: 200})
		time.Sleep(2 * simPark)
	},
	"parked at first": func(*simClient) { time.Sleep(2 * simPark) },
	"slow SSP": func(c *simClient) {
		c.exchange(strings.Replace(simGet, "/fill", "/fill?delay=900", 1), simResponse{status: 200})
	},
	"slow upload": func(c *simClient) {
		c.say("POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n")
		time.Sleep(simRead - tick)
		c.say("a")
		time.Sleep(simRead - tick)
		c.exchange("b", simResponse{status: 200})
	},
	"slow write": func(c *simClient) {
		c.Stall(true)
		c.say(strings.Replace(simGet, "/fill", "/fill?big=100000", 1))
		time.Sleep(simWrite - tick)
		c.Stall(false)
		c.exchange("", simResponse{status: 200})
	},
	"404": func(c *simClient) {
		c.exchange("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", simResponse{status: 404})
	},
}

// arrival is a part of a request: n bytes arrive when pause has passed.
type arrival struct {
	n     int
	pause time.Duration
}

func (a arrival) String() string { return fmt.Sprintf("%d bytes after %v", a.n, a.pause) }

// outcome is how a request must end, according to when its parts arrive.
type outcome struct {
	status int           // 0: the connection is closed without a response
	at     time.Duration // since the last history, -1 for when it is complete
	free   bool          // a 200 is allowed too: a part arrives at the moment of its deadline
}

// expectedOutcome decides how a request must end whose head and body arrive in parts, on a connection that is
// idle at first. It is the definition of read_timeout.
func expectedOutcome(head, body int, parts []arrival) outcome {
	var now, by time.Duration
	free, came := false, 0
	by = simIdle
	late := outcome{0, simIdle, false}
	for _, p := range parts {
		if now += p.pause; now > by {
			late.free = free
			return late
		}
		free = free || now == by && p.pause > 0
		before := came
		came += p.n
		switch {
		case came >= head+body:
			return outcome{200, -1, free}
		case before == 0 && came < head, before < head && came >= head, before == head && came > head:
			by = now + simRead
		}
		if came == 0 {
			continue
		}
		late = outcome{408, by, false}
	}
	late.free = free
	return late
}

// simCase is a request that arrives in parts on a connection with a history.
type simCase struct {
	history          string
	head, body, want string
	parts            []arrival
	held             bool // the connection's goroutine does not run before the deadline
}

// run compares how a request ends with expectedOutcome.
func (s *simProxy) run(sc simCase) {
	s.t.Helper()
	c := s.dial()
	defer c.Release()
	synctest.Wait()
	simHistories[sc.history](c)
	fail := func(format string, args ...any) {
		s.t.Helper()
		s.t.Fatalf("%s, %q, %v, held %v: %s", sc.history, sc.head+sc.body, sc.parts, sc.held, fmt.Sprintf(format, args...))
	}
	if more := c.responses(); len(more) != 0 || c.got != "" {
		fail("the history has left %+v %q", more, c.got)
	}
	start := time.Now()
	if sc.parts[0].pause > 0 {
		// The connection has been idle for a while. A request ends the idle time.
		c.say(simGet)
		if got := c.responses(); len(got) != 1 || got[0].status != 200 {
			fail("the history has left a connection that responds with %+v", got)
		}
	}
	wire, head, body, parts, held := c.wire(sc.head+sc.body), len(sc.head), len(sc.body), sc.parts, sc.held
	if c.tls != nil {
		head, body = len(wire), 0 // a record cannot be read before it is complete
	}
	v := expectedOutcome(head, body, parts)
	for i, p := range parts {
		if v.at >= 0 && !v.free && time.Until(start.Add(v.at)) <= p.pause {
			break // too late for it
		}
		time.Sleep(p.pause)
		c.Hold(held && i > 0)
		c.Arrive(wire[:p.n])
		wire = wire[p.n:]
		synctest.Wait()
	}
	switch {
	case held || v.free:
		time.Sleep(simIdle) // all deadlines pass
		c.Hold(false)
	case v.at >= 0:
		time.Sleep(time.Until(start.Add(v.at - tick)))
		if got := c.responses(); len(got) != 0 || c.Closed() {
			fail("%+v before its time, closed %v", got, c.Closed())
		}
		time.Sleep(tick)
	}
	got := c.responses()
	if len(got) == 1 && got[0].status == 200 && (v.status == 200 || v.free) {
		if got[0].body != sc.want {
			fail("body %q, want %q", got[0].body, sc.want)
		}
		if !held && !v.free { // otherwise it may have been idle for too long meanwhile
			c.exchange(simGet, simResponse{status: 200})
		}
		return
	}
	if v.free && v.status == 200 {
		v.status = 408
		if len(got) == 0 {
			v.status = 0
		}
	}
	switch {
	case !c.Closed():
		fail("the connection goes on behind %+v %q", got, c.got)
	case v.status == 0 && len(got) != 0, v.status != 0 && (len(got) != 1 || got[0].status != v.status):
		fail("%+v %q, want %d", got, c.got, v.status)
	}
}
