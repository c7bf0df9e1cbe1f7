package http2

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// awaitWritten waits until no goroutine writes to the peer.
func (p *peer) awaitWritten() {
	for {
		p.conn.mu.Lock()
		busy := p.conn.out.writing
		p.conn.mu.Unlock()
		if !busy {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func TestCloseSendsGoAwayAndFailsOpenExchanges(t *testing.T) {
	p := connect(t, testOptions())
	done := p.start(get("/"))
	p.request()
	p.awaitWritten() // Close does not wait for a writing goroutine
	p.conn.Close(upstream.ClosedMaxAge)
	wait(t, done).wantError(t, want{outcome: upstream.ConnLost, progress: upstream.MaybeProcessed, detail: "max_age"})
	p.wantGoAway(h2.ErrCodeNo)
	p.conn.Close(upstream.ClosedIdle)
	if p.conn.CloseReason() != upstream.ClosedMaxAge || p.conn.Places() != 0 || p.conn.Idle() {
		t.Errorf("reason %v, %d places", p.conn.CloseReason(), p.conn.Places())
	}
	get("/late").do(p.conn).wantError(t, want{outcome: upstream.ConnLost, progress: upstream.NotSent, detail: "closed"})
	if n := p.owner.changes.Load(); n != 0 {
		t.Errorf("the owner was called %d times for its own calls", n)
	}
}

func TestPeerThatClosesIsNoticedAtOnce(t *testing.T) {
	for name, end := range map[string]func(p *peer){
		"FIN": func(p *peer) { p.net.Close() },
		"RST": func(p *peer) { p.net.(*net.TCPConn).SetLinger(0); p.net.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			if !p.conn.Idle() {
				t.Fatal("an open connection is not usable")
			}
			end(p)
			p.owner.awaitChange(t)
			if p.conn.Idle() || p.conn.CloseReason() != upstream.ClosedByPeer || p.conn.Places() != 0 {
				t.Errorf("reason %v, %d places", p.conn.CloseReason(), p.conn.Places())
			}
		})
	}
}

func TestPeerThatClosesFailsOpenExchanges(t *testing.T) {
	p := connect(t, testOptions())
	ids, done := p.startMany(3)
	p.respond(ids[0], "in time")
	p.head(ids[1], false, ":status", "200")
	p.net.Close()
	wait(t, done[ids[0]]).wantBody(t, "in time")
	for _, id := range ids[1:] {
		wait(t, done[id]).wantError(t, want{outcome: upstream.ConnLost, progress: upstream.MaybeProcessed})
	}
}

func TestGoAwayBehindAFailedWriteIsRead(t *testing.T) {
	// The peer sends GOAWAY and closes while adbuffer writes. The write fails first, but the GOAWAY
	// decides the result.
	p := connect(t, testOptions())
	ids, done := p.startMany(2)
	p.conn.mu.Lock()
	p.conn.writeFailedLocked(syscall.EPIPE)
	p.conn.unlock()
	p.owner.awaitChange(t)
	if p.conn.Places() != 0 || p.conn.CloseReason() != upstream.ClosedByPeer {
		t.Errorf("%d places, reason %v", p.conn.Places(), p.conn.CloseReason())
	}
	p.respond(ids[0], "in time")
	p.do(p.fr.WriteGoAway(ids[0], h2.ErrCodeNo, nil))
	p.net.Close()
	wait(t, done[ids[0]]).wantBody(t, "in time")
	wait(t, done[ids[1]]).wantError(t, notProcessed)
}

func TestTLSConnectionEndsWithCloseNotify(t *testing.T) {
	s := tlsServer(t, http.HandlerFunc(echo))
	client, server := loopback(t)
	defer server.Close()
	config := s.TLS.Clone()
	config.NextProtos = []string{"h2"}
	ts := tls.Server(server, config)
	shaken := make(chan error, 1)
	go func() { shaken <- ts.Handshake() }()
	tc := tls.Client(client, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := tc.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	conn, _ := open(t, tc, testOptions())
	conn.Close(upstream.ClosedIdle)
	if _, err := io.ReadAll(ts); err != nil { // io.ErrUnexpectedEOF without close_notify
		t.Errorf("the peer reads %v", err)
	}
}
