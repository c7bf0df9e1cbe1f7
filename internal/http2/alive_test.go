package http2

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/upstream"

	h2 "golang.org/x/net/http2"
)

// quietPeer is a peer on a pipe, within a bubble, that has shaken hands.
func quietPeer(t *testing.T, opts Options) *peer {
	t.Helper()
	client, server := net.Pipe()
	p := newPeer(t, client, server, opts)
	server.SetDeadline(time.Time{})
	p.handshake()
	synctest.Wait()
	return p
}

func aliveOptions() Options {
	opts := testOptions()
	opts.PingAfterIdle, opts.PingTimeout = time.Minute, 10*time.Second
	return opts
}

func TestSilentPeerIsAskedAndThenLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := quietPeer(t, aliveOptions())
		start := time.Now()
		if f, ok := p.read().(*h2.PingFrame); !ok || f.IsAck() {
			t.Fatalf("got %v", f)
		}
		// The handshake counts as a sign of life in the first minute.
		if d := time.Since(start); d != 2*time.Minute {
			t.Errorf("asked after %v", d)
		}
		p.wantEnd()
		if d := time.Since(start); d != 2*time.Minute+10*time.Second {
			t.Errorf("left after %v", d)
		}
		if p.conn.CloseReason() != upstream.ClosedTimeout {
			t.Errorf("reason %v", p.conn.CloseReason())
		}
	})
}

func TestPeerThatAnswersPingsIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := quietPeer(t, aliveOptions())
		for range 10 {
			f, ok := p.read().(*h2.PingFrame)
			if !ok || f.IsAck() {
				t.Fatalf("got %v", f)
			}
			p.do(p.fr.WritePing(true, f.Data))
		}
		if p.conn.CloseReason() != upstream.NotClosed {
			t.Errorf("reason %v", p.conn.CloseReason())
		}
	})
}

func TestPeerThatTalksIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := quietPeer(t, aliveOptions())
		for range 20 {
			time.Sleep(59 * time.Second)
			p.do(p.fr.WriteWindowUpdate(0, 1))
		}
		p.do(p.fr.WritePing(false, [8]byte{'x'}))
		if f, ok := p.read().(*h2.PingFrame); !ok || !f.IsAck() {
			t.Errorf("got %v before the answer to our PING", f)
		}
	})
}

func TestNobodyIsAskedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := quietPeer(t, testOptions())
		time.Sleep(24 * time.Hour)
		p.do(p.fr.WritePing(false, [8]byte{'x'}))
		if f, ok := p.read().(*h2.PingFrame); !ok || !f.IsAck() {
			t.Errorf("got %v before the answer to our PING", f)
		}
	})
}
