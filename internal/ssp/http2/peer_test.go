package http2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
	"adbuffer/internal/wire/socket"
)

// full runs the campaigns of this package at full length.
var full = flag.Bool("full", false, "run campaigns as a whole")

func TestMain(m *testing.M) {
	testsupport.Main(m)
}

// patience bounds each wait of these tests. It is far longer than any of them takes.
const patience = testsupport.Patience

// freedPlace has the arguments of Freed.
type freedPlace struct {
	held   time.Duration
	ticket exchange.Ticket
}

// owner counts the calls of the connection to its owner.
type owner struct {
	freed   atomic.Int64
	changes atomic.Int64
	changed chan struct{}
	frees   chan freedPlace
}

func newOwner() *owner {
	return &owner{changed: make(chan struct{}, 1024), frees: make(chan freedPlace, 1<<16)}
}

// testTicket is the ticket of each request.
const testTicket = 7

func (o *owner) Freed(held time.Duration, t exchange.Ticket) {
	o.freed.Add(1)
	select {
	case o.frees <- freedPlace{held, t}:
	default:
	}
}

func (o *owner) Changed() {
	o.changes.Add(1)
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *owner) awaitChange(t testing.TB) {
	t.Helper()
	select {
	case <-o.changed:
	case <-time.After(patience):
		t.Fatal("the owner was not called for the change")
	}
}

func (o *owner) awaitFreed(t testing.TB) (f freedPlace) {
	t.Helper()
	select {
	case f = <-o.frees:
	case <-time.After(patience):
		t.Fatal("no place was freed")
	}
	return f
}

// testOptions are generous limits.
func testOptions() Options {
	return Options{MaxStreams: 100, MaxResponseBytes: 4 << 20, MaxResponseHeaderBytes: 16 << 10}
}

// with returns testOptions with a change.
func with(change func(*Options)) Options {
	o := testOptions()
	change(&o)
	return o
}

// peer is a server whose frames the test writes one by one.
type peer struct {
	t     testing.TB
	net   net.Conn
	fr    *h2.Framer
	enc   *hpack.Encoder
	block bytes.Buffer
	conn  *Conn
	owner *owner
}

// connect starts a connection to a scripted peer over loopback. The peer has sent its settings, and
// has read adbuffer's preface and settings.
func connect(t testing.TB, opts Options, settings ...h2.Setting) *peer {
	t.Helper()
	p := dialPeer(t, opts)
	p.handshake(settings...)
	return p
}

// dialPeer does the same as connect, but the peer sends nothing.
func dialPeer(t testing.TB, opts Options) *peer {
	t.Helper()
	client, server := loopback(t)
	return newPeer(t, client, server, opts)
}

func newPeer(t testing.TB, client, server net.Conn, opts Options) *peer {
	t.Helper()
	p := &peer{t: t, net: server, fr: h2.NewFramer(server, server), owner: newOwner()}
	p.enc = hpack.NewEncoder(&p.block)
	p.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.fr.AllowIllegalWrites = true
	p.fr.SetMaxReadFrameSize(1<<24 - 1)
	server.SetDeadline(time.Now().Add(patience))
	conn := New(client, socketOf(client), p.owner, opts)
	p.conn = conn
	t.Cleanup(func() {
		conn.Close(exchange.ClosedDrain)
		server.Close()
	})
	return p
}

// loopback returns the two ends of a TCP connection, adbuffer's end as a dialer would make it.
func loopback(t testing.TB) (client, server net.Conn) {
	t.Helper()
	client, server = testsupport.ConnPair(t, "tcp")
	return socket.New(client), server
}

// socketOf returns the socket below c, which is a socket.Conn or TLS on one.
func socketOf(c net.Conn) *socket.Conn {
	switch c := c.(type) {
	case *tls.Conn:
		return c.NetConn().(*socket.Conn)
	case *countingConn:
		return c.Conn
	}
	return c.(*socket.Conn)
}

func (p *peer) handshake(settings ...h2.Setting) {
	p.t.Helper()
	p.readPreface()
	p.do(p.fr.WriteSettings(settings...))
	for {
		if f, ok := p.read().(*h2.SettingsFrame); ok && f.IsAck() {
			return
		}
	}
}

func (p *peer) readPreface() {
	p.t.Helper()
	b := make([]byte, len(h2.ClientPreface))
	_, err := io.ReadFull(p.net, b)
	testsupport.NoError(p.t, err)
	testsupport.MustTrue(p.t, string(b) == h2.ClientPreface, "preface is %q", b)
}

func (p *peer) do(err error) {
	p.t.Helper()
	testsupport.NoError(p.t, err)
}

// read returns the next frame of any type.
func (p *peer) read() h2.Frame {
	p.t.Helper()
	f, err := p.fr.ReadFrame()
	testsupport.MustTrue(p.t, err == nil, "reading a frame: %v", err)
	return f
}

// next returns the next frame of type F. It skips all other frames except GOAWAY and RST_STREAM,
// which fail the test.
func next[F h2.Frame](p *peer) F {
	p.t.Helper()
	for {
		switch f := p.read().(type) {
		case F:
			return f
		case *h2.GoAwayFrame:
			p.t.Fatalf("GOAWAY %v %q instead of %T", f.ErrCode, f.DebugData(), *new(F))
		case *h2.RSTStreamFrame:
			p.t.Fatalf("RST_STREAM %d %v instead of %T", f.StreamID, f.ErrCode, *new(F))
		}
	}
}

// request returns the next request's stream, after checking its body.
func (p *peer) request() *h2.MetaHeadersFrame {
	p.t.Helper()
	return next[*h2.MetaHeadersFrame](p)
}

// requestAfterResets does the same as request, and skips resets of other streams before it.
func (p *peer) requestAfterResets() *h2.MetaHeadersFrame {
	p.t.Helper()
	for {
		switch f := p.read().(type) {
		case *h2.MetaHeadersFrame:
			return f
		case *h2.GoAwayFrame:
			p.t.Fatalf("GOAWAY %v %q", f.ErrCode, f.DebugData())
		}
	}
}

// encode returns a header block from alternating names and values.
func (p *peer) encode(fields ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		p.do(p.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

// head sends HEADERS.
func (p *peer) head(id uint32, last bool, fields ...string) {
	p.t.Helper()
	p.do(p.fr.WriteHeaders(h2.HeadersFrameParam{StreamID: id, BlockFragment: p.encode(fields...), EndHeaders: true, EndStream: last}))
}

func (p *peer) data(id uint32, last bool, body string) {
	p.t.Helper()
	p.do(p.fr.WriteData(id, last, []byte(body)))
}

// respond sends a complete response with status 200.
func (p *peer) respond(id uint32, body string) {
	p.t.Helper()
	p.head(id, false, ":status", "200")
	for len(body) > http2codec.MaxFrameSize {
		p.data(id, false, body[:http2codec.MaxFrameSize])
		body = body[http2codec.MaxFrameSize:]
	}
	p.data(id, true, body)
}

// wantReset waits for RST_STREAM.
func (p *peer) wantReset(id uint32, code h2.ErrCode) {
	p.t.Helper()
	for {
		switch f := p.read().(type) {
		case *h2.RSTStreamFrame:
			testsupport.MustTrue(p.t, f.StreamID == id && f.ErrCode == code, "RST_STREAM %d %v, want %d %v", f.StreamID, f.ErrCode, id, code)
			return
		case *h2.GoAwayFrame:
			p.t.Fatalf("GOAWAY %v %q, want RST_STREAM %v", f.ErrCode, f.DebugData(), code)
		}
	}
}

// wantGoAway waits for GOAWAY with code and the end of the connection.
func (p *peer) wantGoAway(code h2.ErrCode) {
	p.t.Helper()
	for {
		f, err := p.fr.ReadFrame()
		testsupport.MustTrue(p.t, err == nil, "connection ended with %v, want GOAWAY %v", err, code)
		if f, ok := f.(*h2.GoAwayFrame); ok {
			testsupport.MustEqual(p.t, f.ErrCode, code, "GOAWAY %v %q", f.DebugData())
			break
		}
	}
	p.wantEnd()
}

// wantClosed checks that the connection takes no more exchanges, for this reason.
func (p *peer) wantClosed(reason exchange.CloseReason) {
	p.t.Helper()
	testsupport.Equal(p.t, p.conn.CloseReason(), reason, "reason %v")
	testsupport.Equal(p.t, p.conn.Places(), 0, "%d places")
	testsupport.True(p.t, !p.conn.Idle(), "a closed connection is usable")
}

// wantEnd waits for the end of the connection.
func (p *peer) wantEnd() {
	p.t.Helper()
	for {
		if _, err := p.fr.ReadFrame(); err != nil {
			testsupport.MustTrue(p.t, !errors.Is(err, os.ErrDeadlineExceeded), "the connection was not closed")
			return
		}
	}
}

// eventually waits until the connection's state, which its lock guards, is ok.
func (p *peer) eventually(what string, ok func() bool) {
	p.t.Helper()
	testsupport.Eventually(p.t, what, func() bool {
		p.conn.mu.Lock()
		defer p.conn.mu.Unlock()
		return ok()
	})
}

// ping waits until the connection has handled all frames sent before.
func (p *peer) ping() {
	p.t.Helper()
	data := [8]byte{'t', 'e', 's', 't'}
	p.do(p.fr.WritePing(false, data))
	for {
		if f := next[*h2.PingFrame](p); f.IsAck() && f.Data == data {
			return
		}
	}
}
