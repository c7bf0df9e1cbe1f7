package http2

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"

	h2 "golang.org/x/net/http2"
)

func TestCloseSendsGoAwayAndFailsOpenExchanges(t *testing.T) {
	p := connect(t, testOptions())
	done := p.start(get("/"))
	p.request()
	// Close does not wait for a writing goroutine.
	p.eventually("no goroutine writes to the peer", func() bool { return !p.conn.out.Writing })
	p.conn.Close(exchange.ClosedMaxAge)
	wait(t, done).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed, detail: "max_age"})
	p.wantGoAway(h2.ErrCodeNo)
	p.conn.Close(exchange.ClosedIdle)
	p.wantClosed(exchange.ClosedMaxAge)
	get("/late").do(p.conn).wantError(t, want{outcome: exchange.ConnLost, progress: exchange.NotSent, detail: "closed"})
	testsupport.Equal(t, p.owner.changes.Load(), 0, "the owner was called %d times for its own calls")
}

func TestPeerThatClosesIsNoticedAtOnce(t *testing.T) {
	for name, end := range map[string]func(p *peer){
		"FIN": func(p *peer) { p.net.Close() },
		"RST": func(p *peer) { p.net.(*net.TCPConn).SetLinger(0); p.net.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			testsupport.MustTrue(t, p.conn.Idle(), "an open connection is not usable")
			end(p)
			p.owner.awaitChange(t)
			p.wantClosed(exchange.ClosedByPeer)
		})
	}
}

func TestTLSConnectionEndsWithCloseNotify(t *testing.T) {
	s := tlsServer(t, http.HandlerFunc(echo))
	client, server := loopback(t)
	defer server.Close()
	config := s.TLS.Clone()
	config.NextProtos = []string{"h2"}
	sock := socket.New(server)
	sock.Records() // without close_notify, a Read fails; crypto/tls alone takes a FIN for close_notify
	ts := tls.Server(sock, config)
	shaken := make(chan error, 1)
	go func() { shaken <- ts.Handshake() }()
	tc := tls.Client(client, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	testsupport.NoError(t, tc.Handshake())
	testsupport.NoError(t, <-shaken)
	conn, _ := open(t, tc, testOptions())
	testsupport.Eventually(t, "the preface is written", func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.out.Handed > 0 && !conn.out.Writing
	})
	conn.Close(exchange.ClosedIdle)
	_, err := io.ReadAll(ts)
	testsupport.True(t, err == nil, "the peer reads %v", err)
}
