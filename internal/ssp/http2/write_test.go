package http2

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
	"adbuffer/internal/wire/socket"

	h2 "golang.org/x/net/http2"
)

// countingConn counts writes.
type countingConn struct {
	*socket.Conn
	writes atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func TestRequestsOfReadyCallersAreSentInOneWrite(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	client, server := loopback(t)
	counting := &countingConn{Conn: client.(*socket.Conn)}
	p := newPeer(t, counting, server, testOptions())
	p.handshake()
	p.ping()
	before := counting.writes.Load()
	const n = 50
	_, done := p.startMany(n)
	// With one processor all callers are ready before the first of them writes. A preemption may
	// split them.
	testsupport.AtMost(t, counting.writes.Load()-before, n/5, "%[2]d requests took %[1]d writes", n)
	for id, ch := range done {
		p.respond(id, "ok")
		wait(t, ch).wantBody(t, "ok")
	}
}

func TestHeaderAndBodyAreSentInOneWrite(t *testing.T) {
	client, server := loopback(t)
	counting := &countingConn{Conn: client.(*socket.Conn)}
	p := newPeer(t, counting, server, testOptions())
	p.handshake()
	p.ping()
	before := counting.writes.Load()
	done, id := p.begin(post("/", strings.Repeat("x", 30000)))
	p.wantData(id, 30000)
	testsupport.Equal(t, counting.writes.Load()-before, 1, "one request took %d writes")
	p.respond(id, "ok")
	wait(t, done).wantBody(t, "ok")
}

// stuck returns a peer that has stopped reading, with all buffers full.
func stuck(t *testing.T, opts Options) (p *peer, first <-chan result) {
	t.Helper()
	p, first = unread(t, opts)
	p.awaitFullSocket()
	return p, first
}

// unread returns a peer that does not read a large request, which fills all buffers.
func unread(t *testing.T, opts Options) (p *peer, first <-chan result) {
	t.Helper()
	p = connect(t, opts, h2.Setting{ID: h2.SettingInitialWindowSize, Val: http2codec.MaxWindow})
	p.do(p.fr.WriteWindowUpdate(0, http2codec.MaxWindow-http2codec.InitialWindow))
	p.ping()
	return p, p.start(post("/fill", strings.Repeat("x", 32<<20)))
}

// awaitFullSocket waits until writes make no progress.
func (p *peer) awaitFullSocket() {
	p.t.Helper()
	var handed uint64
	var since time.Time
	p.eventually("the socket is full", func() bool {
		if handed != p.conn.out.Handed {
			handed, since = p.conn.out.Handed, time.Now()
		}
		return p.conn.out.Writing && len(p.conn.out.Frames) >= maxBuffered && time.Since(since) > 200*time.Millisecond
	})
}

func TestStuckPeerDelaysNoCallerBeyondItsDeadline(t *testing.T) {
	p, first := stuck(t, with(func(o *Options) { o.WriteTimeout, o.PingTimeout = time.Hour, time.Hour }))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r := get("/")
			if i%2 == 1 {
				r = post("/", strings.Repeat("x", 100000))
			}
			r.timeout = 50 * time.Millisecond
			testsupport.Equal[error](t, r.do(p.conn).err, exchange.ErrDeadline, "got %v")
		})
	}
	wg.Wait()
	p.conn.Close(exchange.ClosedDrain) // also returns without waiting
	wait(t, first).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed})
	testsupport.Eventually(t, "all places are freed", func() bool { return p.owner.freed.Load() == 21 })
}

func TestConnectionToAStuckPeerIsClosed(t *testing.T) {
	p, first := unread(t, with(func(o *Options) { o.WriteTimeout = 500 * time.Millisecond }))
	wait(t, first).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed, detail: "stopped reading"})
	testsupport.Equal(t, p.conn.CloseReason(), exchange.ClosedTimeout, "reason %v")
}

func TestRequestsThatCannotBeWrittenAreRefused(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		c, w, o := onWire(t, with(func(o *Options) { o.MaxStreams = 1000 }))
		w.change(func() { w.room = 0 })
		const n, size = 200, 7 << 10
		var done []<-chan result
		for range n {
			r := get("/")
			r.fields, r.timeout = "X-Fill: "+strings.Repeat("x", size)+"\r\n", time.Second
			done = append(done, r.start(c))
			synctest.Wait() // the first write waits, and all later requests wait behind it
		}
		c.mu.Lock()
		testsupport.AtMost(t, len(c.out.Frames), maxUnwritten+2*size, "%d bytes wait to be written")
		c.mu.Unlock()
		refused := 0
		for _, ch := range done {
			res := <-ch
			if errors.Is(res.err, exchange.ErrDeadline) {
				continue
			}
			res.wantError(t, want{outcome: exchange.Overloaded, progress: exchange.NotSent, detail: "pool.max_streams_per_conn"})
			refused++
		}
		accepted := (n - refused) * size
		testsupport.True(t, accepted >= maxUnwritten && accepted <= maxUnwritten+2*size, "%d of %d requests were refused", refused, n)
		c.Close(exchange.ClosedDrain)
		synctest.Wait()
		testsupport.Equal(t, o.freed.Load(), n, "%d of %d places were freed", n)
	})
}

// The send buffer counts as empty once the peer has responded. A peer can respond to requests that it
// has not read: then a caller writes to a socket that is full.
func TestPeerThatRespondsWithoutReadingDelaysNoCaller(t *testing.T) {
	client, server := loopback(t)
	client.(*socket.Conn).Conn.(*net.TCPConn).SetWriteBuffer(64 << 10)
	server.(*net.TCPConn).SetReadBuffer(64 << 10)
	p := newPeer(t, client, server, with(func(o *Options) { o.WriteTimeout, o.PingTimeout = time.Hour, time.Hour }))
	p.handshake()
	id := uint32(1)
	for p.conn.CloseReason() == exchange.NotClosed {
		r := get("/")
		r.fields = "X-Fill: " + strings.Repeat("x", 7<<10) + "\r\n"
		r.timeout = time.Second
		done := p.start(r)
		p.eventually("the stream is open", func() bool { return p.conn.streams.next > id || p.conn.closed })
		p.head(id, true, ":status", "204")
		wait(t, done)
		if id += 2; id > 4000 {
			t.Fatal("the socket was never full")
		}
	}
	testsupport.Equal(t, p.conn.CloseReason(), exchange.ClosedTimeout, "close reason %v")
}

func TestReaderContinuesWhileThePeerIsStuck(t *testing.T) {
	// Each side waits until the other reads: a typical deadlock.
	p := connect(t, with(func(o *Options) { o.WriteTimeout = time.Hour }), h2.Setting{ID: h2.SettingInitialWindowSize, Val: http2codec.MaxWindow})
	p.do(p.fr.WriteWindowUpdate(0, http2codec.MaxWindow-http2codec.InitialWindow))
	p.ping()
	small, id := p.begin(get("/small"))
	large := p.start(post("/large", strings.Repeat("x", 32<<20)))
	p.awaitFullSocket()
	for range 100 {
		p.do(p.fr.WritePing(false, [8]byte{})) // the peer expects its ACK later
	}
	p.respond(id, strings.Repeat("y", 4<<20))
	wait(t, small).wantBody(t, strings.Repeat("y", 4<<20))
	p.conn.Close(exchange.ClosedDrain)
	wait(t, large)
}

func TestUnwrittenRequestsAreNotSent(t *testing.T) {
	p, first, behind := halfWritten(t)
	p.conn.Close(exchange.ClosedError)
	wait(t, behind).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.NotSent})
	wait(t, first).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed})
}

// A request that counts as not sent may be sent elsewhere. adbuffer must not write it before the
// GOAWAY.
func TestUnsentRequestsAreNotWrittenLater(t *testing.T) {
	p, first, behind := halfWritten(t)
	p.do(p.fr.WriteData(0, false, nil)) // stream 0: a violation
	wait(t, behind).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.NotSent, demote: true})
	wait(t, first).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true})
	p.request() // the first request
	for {
		f, err := p.fr.ReadFrame()
		testsupport.MustTrue(t, err == nil, "the connection ended with %v, want a GOAWAY", err)
		switch f := f.(type) {
		case *h2.MetaHeadersFrame:
			t.Fatalf("the request on stream %d was written", f.StreamID)
		case *h2.GoAwayFrame:
			return
		}
	}
}

// halfWritten returns a peer and a request that is being written, with another request queued
// behind it.
func halfWritten(t *testing.T) (p *peer, first, behind <-chan result) {
	client, server := net.Pipe() // no buffer: a write waits until it is read
	p = newPeer(t, socket.New(client), server, testOptions())
	p.handshake()
	p.ping()
	first = p.start(get("/first"))
	p.eventually("the first request is being written", func() bool { return p.conn.streams.active == 1 && p.conn.out.Writing && len(p.conn.out.Frames) == 0 })
	behind = p.start(get("/behind"))
	p.eventually("the second request is queued", func() bool { return p.conn.streams.active == 2 })
	return p, first, behind
}

func TestResponsesFreeTheSendBuffer(t *testing.T) {
	r := sendBuffer{size: 10 * writeOverhead}
	writes := 0
	for r.fits(100) {
		r.spent += cost(100)
		writes++
	}
	testsupport.True(t, writes != 0 && writes <= 9, "%d writes fit", writes)
	r.prove(r.spent - cost(100))
	testsupport.True(t, r.fits(100), "a response to the last request freed no space")
	r.prove(0) // an older request changes nothing
	testsupport.True(t, r.fits(100), "a response to an old request reduced the space")
}

func TestCallersWriteToASocketThemselves(t *testing.T) {
	client, _ := loopback(t)
	defer client.Close()
	c := newConn(client, socketOf(client), newOwner(), testOptions())
	testsupport.True(t, c.sendBuffer.fits(8<<10), "a fresh socket has space for only %d bytes", c.sendBuffer.size)
}
