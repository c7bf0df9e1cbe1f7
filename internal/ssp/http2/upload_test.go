package http2

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"

	h2 "golang.org/x/net/http2"
)

// wantData reads DATA until n > 0 bytes of the stream's body have arrived, and fails if more
// arrive.
func (p *peer) wantData(id uint32, n int) (body string, ended bool) {
	p.t.Helper()
	var got strings.Builder
	for got.Len() < n {
		f := next[*h2.DataFrame](p)
		testsupport.MustEqual(p.t, f.StreamID, id, "DATA on stream %d")
		got.Write(f.Data())
		ended = f.StreamEnded()
	}
	testsupport.MustEqual(p.t, got.Len(), n, "%d bytes of DATA")
	return got.String(), ended
}

// wantNoData checks that no DATA is under way.
func (p *peer) wantNoData() {
	p.t.Helper()
	data := [8]byte{'n', 'o'}
	p.do(p.fr.WritePing(false, data))
	for {
		switch f := p.read().(type) {
		case *h2.DataFrame:
			p.t.Fatalf("unexpected %v", f)
		case *h2.PingFrame:
			if f.IsAck() && f.Data == data {
				return
			}
		}
	}
}

// Many uploads wait for the connection's window. Each WINDOW_UPDATE goes to the first of them.
func TestUploadsShareTheConnectionsWindowInOrder(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
	fill, filled := p.begin(post("/", strings.Repeat("f", http2codec.InitialWindow)))
	p.wantData(filled, http2codec.InitialWindow)
	const n = 20
	var ids []uint32
	var done []<-chan result
	for range n {
		done = append(done, p.start(post("/", strings.Repeat("x", 15))))
		ids = append(ids, p.request().StreamID)
	}
	p.do(p.fr.WriteWindowUpdate(0, 10))
	p.wantData(ids[0], 10)
	p.wantNoData()
	// The remaining first body queues behind the other bodies.
	p.do(p.fr.WriteWindowUpdate(0, 15*(n-1)))
	for _, id := range ids[1:] {
		p.wantData(id, 15)
	}
	p.wantNoData()
	p.do(p.fr.WriteWindowUpdate(0, 5))
	p.wantData(ids[0], 5)
	p.respond(filled, "ok")
	wait(t, fill).wantBody(t, "ok")
	for i, id := range ids {
		p.respond(id, "ok")
		wait(t, done[i]).wantBody(t, "ok")
	}
}

// An upload that ends while it is first in the queue leaves its turn to the next one.
func TestUploadThatEndsLeavesItsTurnToTheNext(t *testing.T) {
	for range 50 {
		p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 1 << 20})
		p.start(post("/", strings.Repeat("f", http2codec.InitialWindow)))
		p.wantData(p.request().StreamID, http2codec.InitialWindow)
		ctx, cancel := context.WithCancel(context.Background())
		r := post("/", "gone")
		r.ctx = ctx
		gone := p.start(r)
		p.request()
		p.start(post("/", "stays"))
		id := p.request().StreamID
		go cancel()
		p.do(p.fr.WriteWindowUpdate(0, 9))
		for {
			f := p.read()
			if d, ok := f.(*h2.DataFrame); ok && d.StreamID == id {
				testsupport.MustTrue(t, string(d.Data()) == "stays", "DATA is %q", d.Data())
				break
			}
		}
		wait(t, gone)
		p.conn.Close(exchange.ClosedDrain)
	}
}

func TestWindowMayBecomeNegative(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 10})
	done, id := p.begin(post("/", strings.Repeat("x", 30)))
	p.wantData(id, 10)
	p.do(p.fr.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 3})) // window is -7
	p.do(p.fr.WriteWindowUpdate(id, 7))                                           // 0
	p.wantNoData()
	p.do(p.fr.WriteWindowUpdate(id, 2))
	p.wantData(id, 2)
	p.wantNoData()
	p.do(p.fr.WriteSettings(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 8})) // 5 more
	p.wantData(id, 5)
	p.do(p.fr.WriteWindowUpdate(id, 100))
	_, ended := p.wantData(id, 13)
	testsupport.True(t, ended, "the last DATA has no END_STREAM")
	p.respond(id, "ok")
	wait(t, done).wantBody(t, "ok")
}

func TestResponseBeforeTheEndOfTheBodyIsDelivered(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 10})
	done, id := p.begin(post("/", strings.Repeat("x", 30)))
	p.wantData(id, 10)
	p.respond(id, "enough")
	wait(t, done).wantBody(t, "enough")
	p.wantReset(id, h2.ErrCodeNo)
	// A server may send this reset itself: RFC 9113, section 8.1. Then the stream is already
	// closed.
	p.do(p.fr.WriteRSTStream(id, h2.ErrCodeNo))
	p.ping()
	testsupport.Equal(t, p.owner.freed.Load(), 1, "the place was freed %d times")
}

func TestUploadEndsWhen(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(p *peer, id uint32, cancel func())
		timeout time.Duration
		want    want
		is      error
	}{
		"the peer resets the stream": {
			happens: func(p *peer, id uint32, _ func()) { p.do(p.fr.WriteRSTStream(id, h2.ErrCodeInternal)) },
			want:    want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed, detail: "INTERNAL_ERROR"},
		},
		"the peer refuses the stream": {
			happens: func(p *peer, id uint32, _ func()) { p.do(p.fr.WriteRSTStream(id, h2.ErrCodeRefusedStream)) },
			want:    want{outcome: exchange.ConnLost, progress: exchange.NotProcessed, detail: "REFUSED_STREAM"},
		},
		"the connection ends": {
			happens: func(p *peer, _ uint32, _ func()) { p.net.Close() },
			want:    want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed},
		},
		"the connection is closed": {
			happens: func(p *peer, _ uint32, _ func()) { p.conn.Close(exchange.ClosedMaxAge) },
			want:    want{outcome: exchange.ConnLost, progress: exchange.MaybeProcessed, detail: "max_age"},
		},
		"the deadline passes": {
			happens: func(*peer, uint32, func()) {},
			timeout: 50 * time.Millisecond,
			is:      exchange.ErrDeadline,
		},
		"the exchange was cancelled": {
			happens: func(_ *peer, _ uint32, cancel func()) { cancel() },
			is:      exchange.ErrCancelled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: 10})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			r := post("/", strings.Repeat("x", 30))
			r.ctx, r.timeout = ctx, c.timeout
			done, id := p.begin(r)
			p.wantData(id, 10)
			c.happens(p, id, cancel)
			res := wait(t, done)
			p.conn.mu.Lock()
			testsupport.Equal(t, p.conn.uploads.n, 0, "%d uploads are counted")
			p.conn.mu.Unlock()
			if c.is != nil {
				testsupport.MustTrue(t, res.err == c.is, "got %v, want %v", res.err, c.is)
				p.wantReset(id, h2.ErrCodeCancel)
				return
			}
			res.wantError(t, c.want)
			testsupport.Equal(t, p.owner.freed.Load(), 1, "the place was freed %d times")
		})
	}
}

func TestLargeBodyDoesNotFillTheBufferBeyondItsBound(t *testing.T) {
	p := connect(t, testOptions(), h2.Setting{ID: h2.SettingInitialWindowSize, Val: http2codec.MaxWindow})
	p.do(p.fr.WriteWindowUpdate(0, http2codec.MaxWindow-http2codec.InitialWindow))
	p.ping()
	p.net.(*net.TCPConn).SetReadBuffer(64 << 10)
	body := strings.Repeat("x", 6<<20) // more than the sockets hold
	done, id := p.begin(post("/", body))
	p.eventually("the buffer fills up", func() bool {
		n := len(p.conn.out.Frames)
		testsupport.MustTrue(t, n <= maxBuffered+maxDataFrame, "%d bytes are buffered", n)
		return n > maxBuffered/2
	})
	p.wantData(id, len(body))
	p.respond(id, "ok")
	wait(t, done).wantBody(t, "ok")
}
