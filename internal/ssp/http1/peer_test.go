package http1

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

func TestMain(m *testing.M) {
	testsupport.Main(m)
}

// patience bounds each wait of these tests. It is far longer than any of them takes.
const patience = testsupport.Patience

// peer is the other end of one connection. The test's goroutine sends through it.
type peer struct {
	tb   testing.TB
	tcp  net.Conn
	conn net.Conn // tcp, or TLS on it
	in   *bufio.Reader
}

// request reads one complete request and returns it.
func (p *peer) request() string {
	p.tb.Helper()
	p.conn.SetReadDeadline(time.Now().Add(patience))
	var b strings.Builder
	length := 0
	for {
		line, err := p.in.ReadString('\n')
		testsupport.MustTrue(p.tb, err == nil, "peer: reading a request: %v after %q", err, b.String()+line)
		b.WriteString(line)
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
		if line == "\r\n" {
			break
		}
	}
	body := make([]byte, length)
	_, err := io.ReadFull(p.in, body)
	testsupport.MustTrue(p.tb, err == nil, "peer: reading a request's body: %v", err)
	return b.String() + string(body)
}

func (p *peer) send(s string) {
	p.tb.Helper()
	p.conn.SetWriteDeadline(time.Now().Add(patience))
	_, err := io.WriteString(p.conn, s)
	testsupport.MustTrue(p.tb, err == nil, "peer: sending %q: %v", s, err)
}

// sendTogether sends the parts in one segment, even if they are several TLS records.
func (p *peer) sendTogether(parts ...string) {
	p.tb.Helper()
	c := p.tcp.(*corkable)
	c.cork()
	for _, s := range parts {
		p.send(s)
	}
	c.uncork()
}

func (p *peer) close() { p.conn.Close() }

// reset closes the connection with a RST.
func (p *peer) reset() {
	p.tcp.(*corkable).Conn.(*net.TCPConn).SetLinger(0)
	p.tcp.Close()
}

// wantClosed waits until the other side has closed, and returns the bytes that it sent before.
func (p *peer) wantClosed() string {
	p.tb.Helper()
	p.conn.SetReadDeadline(time.Now().Add(patience))
	b, err := io.ReadAll(p.in)
	testsupport.MustTrue(p.tb, !errors.Is(err, os.ErrDeadlineExceeded), "peer: the connection was not closed; it sent %q", b)
	return string(b)
}

// corkable can collect writes, to send them together.
type corkable struct {
	net.Conn
	held   []byte
	corked bool
}

func (c *corkable) Write(b []byte) (int, error) {
	if c.corked {
		c.held = append(c.held, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *corkable) cork() { c.corked = true }
func (c *corkable) uncork() {
	c.corked = false
	c.Conn.Write(c.held)
	c.held = nil
}

// recorder is an Owner that counts its calls.
type recorder struct {
	freed, changed atomic.Int64
	event          chan struct{} // one for each call
}

func newRecorder() *recorder { return &recorder{event: make(chan struct{}, 1<<16)} }

// testTicket is the ticket of each exchange. A connection returns it for an abandoned exchange too.
const testTicket = 7

func (r *recorder) Freed(held time.Duration, t exchange.Ticket) {
	if t != testTicket {
		panic("the place has another ticket")
	}
	if held < 0 || held > time.Hour {
		panic("a place was in use for " + held.String())
	}
	r.freed.Add(1)
	r.event <- struct{}{}
}

func (r *recorder) Changed() {
	r.changed.Add(1)
	r.event <- struct{}{}
}

func (r *recorder) counts() (freed, changed int) {
	return int(r.freed.Load()), int(r.changed.Load())
}

// await waits until the calls so far fulfil until.
func (r *recorder) await(tb testing.TB, what string, until func(freed, changed int) bool) {
	tb.Helper()
	limit := time.After(patience)
	for {
		if until(r.counts()) {
			return
		}
		select {
		case <-r.event:
		case <-limit:
			freed, changed := r.counts()
			tb.Fatalf("timeout while waiting for %s; Freed %d, Changed %d", what, freed, changed)
		}
	}
}

func (r *recorder) awaitFreed(tb testing.TB, n int) {
	tb.Helper()
	r.await(tb, "Freed", func(freed, _ int) bool { return freed >= n })
	freed, _ := r.counts()
	testsupport.MustEqual(tb, freed, n, "Freed was called %d times")
}

// testOptions are limits that tests do not reach by accident.
func testOptions() *Options {
	return &Options{MaxResponseBytes: 1 << 20, MaxResponseHeaderBytes: 16 << 10, Linger: patience, Depth: 8}
}

// with returns testOptions with a change.
func with(change func(*Options)) *Options {
	o := testOptions()
	change(o)
	return o
}

// transport is the transport of a connection.
type transport bool

const (
	plain   transport = false
	overTLS transport = true
)

func (tr transport) String() string {
	if tr == overTLS {
		return "tls"
	}
	return "plain"
}

// transports are the transports of the tests.
var transports = []transport{plain, overTLS}

// connect returns both ends of a new loopback connection, adbuffer's end as a dialer would make it.
func connect(tb testing.TB, tr transport) (ours net.Conn, sock *socket.Conn, p *peer) {
	tb.Helper()
	raw, accepted := testsupport.ConnPair(tb, "tcp")
	sock = socket.New(raw)
	p = &peer{tb: tb, tcp: &corkable{Conn: accepted}}
	p.conn, ours = p.tcp, sock
	if tr == overTLS {
		sock.Records()
		client := tls.Client(sock, clientTLS())
		server := tls.Server(p.tcp, serverTLS())
		p.conn, ours = server, client
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		testsupport.NoError(tb, client.Handshake())
		testsupport.NoError(tb, <-done)
	}
	p.in = bufio.NewReader(p.conn)
	tb.Cleanup(func() {
		p.tcp.Close()
		ours.Close()
	})
	return ours, sock, p
}

// dial returns an exclusive connection and its peer.
func dial(tb testing.TB, tr transport, opts *Options) (*Conn, *peer, *recorder) {
	tb.Helper()
	conn, p, owner := exclusive.dial(tb, tr, opts)
	return conn.(*Conn), p, owner
}

// newExchange returns a GET with a late deadline. Tests do not release it. A channel of an exchange
// from outside a synctest bubble would stop the bubble's clock.
func newExchange(tb testing.TB) *exchange.Exchange {
	ex := exchange.AcquireExchange()
	ex.Request = exchange.Request{
		Method: exchange.GET, Scheme: "http", Authority: []byte("ssp.example"), Target: []byte("/bid?slot=top"),
		Fields: []byte("Accept: */*\r\n"),
	}
	ex.Times.Acquired = time.Now()
	ex.Deadline = ex.Times.Acquired.Add(patience)
	ex.UsualTimeout, ex.Ticket = patience, testTicket
	return ex
}

// kind is one of the two kinds of connections.
type kind string

const (
	exclusive kind = "exclusive"
	pipelined kind = "pipelined"
)

var kinds = []kind{exclusive, pipelined}

// open returns a connection of this kind on c.
func (k kind) open(c net.Conn, sock *socket.Conn, owner exchange.Owner, opts *Options) exchange.Conn {
	if k == pipelined {
		return NewPipelined(c, sock, owner, opts)
	}
	return New(c, sock, owner, opts)
}

// dial returns a connection of this kind and its peer.
func (k kind) dial(tb testing.TB, tr transport, opts *Options) (exchange.Conn, *peer, *recorder) {
	tb.Helper()
	c, sock, p := connect(tb, tr)
	owner := newRecorder()
	conn := k.open(c, sock, owner, opts)
	tb.Cleanup(func() { conn.Close(exchange.ClosedDrain) })
	return conn, p, owner
}

func start(conn exchange.Conn, ex *exchange.Exchange) <-chan error {
	done := make(chan error, 1)
	go func() { done <- conn.Do(ex) }()
	return done
}

// wait waits for the end of an exchange.
func wait(tb testing.TB, done <-chan error) error {
	tb.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		tb.Fatal("the exchange did not end")
		return nil
	}
}

// wantEndsWith waits for the end of an exchange with this error.
func wantEndsWith(tb testing.TB, done <-chan error, want error) {
	tb.Helper()
	testsupport.MustEqual(tb, wait(tb, done), want, "error %v")
}

// ask starts an exchange, and returns once the peer has read its request.
func ask(tb testing.TB, conn exchange.Conn, p *peer) (*exchange.Exchange, <-chan error) {
	tb.Helper()
	ex := newExchange(tb)
	done := start(conn, ex)
	p.request()
	return ex, done
}

// wantResponse checks that the exchange succeeded with this body.
func wantResponse(tb testing.TB, err error, ex *exchange.Exchange, status int, body string) {
	tb.Helper()
	testsupport.MustTrue(tb, err == nil, "the exchange failed: %v", err)
	testsupport.MustTrue(tb, ex.Response.Status == status && string(ex.Response.Body) == body, "response %d %.100q, want %d %.100q", ex.Response.Status, ex.Response.Body, status, body)
	for name, at := range map[string]time.Time{"FirstByte": ex.Times.FirstByte, "Done": ex.Times.Done} {
		testsupport.MustTrue(tb, !at.Before(ex.Times.Acquired), "Times.%s %v is before Times.Lent %v", name, at, ex.Times.Acquired)
	}
}

// wantError checks the error of an exchange.
func wantError(tb testing.TB, err error, outcome exchange.Outcome, progress exchange.Progress, stale bool) {
	tb.Helper()
	e, ok := err.(*exchange.Error)
	testsupport.MustTrue(tb, ok && e.Outcome == outcome && e.Progress == progress && e.Stale == stale, "error %v (%+v), want outcome %v, progress %d, stale %v", err, err, outcome, progress, stale)
}

// wantReason checks the close reason of a connection and its number of places.
func wantReason(tb testing.TB, conn exchange.Conn, reason exchange.CloseReason) {
	tb.Helper()
	testsupport.MustEqual(tb, conn.CloseReason(), reason, "close reason %q")
	places := conn.Places()
	testsupport.MustTrue(tb, (places > 0) == (reason == exchange.NotClosed), "%d places with close reason %q", places, reason)
}

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

// textResponse returns a 200 with a body of fixed length.
func textResponse(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

var certificate = sync.OnceValue(func() tls.Certificate { return testsupport.Certificate("ssp.example") })

// serverTLS writes each Write of up to 16 KB as one record.
func serverTLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{certificate()}, DynamicRecordSizingDisabled: true}
}

func clientTLS() *tls.Config {
	// With a session cache the client accepts tickets, like a dialer's client.
	return &tls.Config{ServerName: "ssp.example", RootCAs: testsupport.Roots(certificate()), ClientSessionCache: tls.NewLRUClientSessionCache(8)}
}
