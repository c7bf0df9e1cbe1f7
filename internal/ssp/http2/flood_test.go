package http2

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/http2codec"
	"adbuffer/internal/wire/socket"

	h2 "golang.org/x/net/http2"
)

func TestFloodsCloseTheConnection(t *testing.T) {
	for name, send := range map[string]func(p *peer, id uint32) error{
		"PING":                      func(p *peer, _ uint32) error { return p.fr.WritePing(false, [8]byte{}) },
		"PING ACK":                  func(p *peer, _ uint32) error { return p.fr.WritePing(true, [8]byte{}) },
		"SETTINGS":                  func(p *peer, _ uint32) error { return p.fr.WriteSettings() },
		"SETTINGS ACK":              func(p *peer, _ uint32) error { return p.fr.WriteSettingsAck() },
		"empty DATA":                func(p *peer, id uint32) error { return p.fr.WriteData(id, false, nil) },
		"padding":                   func(p *peer, id uint32) error { return p.fr.WriteDataPadded(id, false, nil, make([]byte, 9)) },
		"WINDOW_UPDATE":             func(p *peer, _ uint32) error { return p.fr.WriteWindowUpdate(0, 1) },
		"WINDOW_UPDATE of a stream": func(p *peer, id uint32) error { return p.fr.WriteWindowUpdate(id, 1) },
		"RST_STREAM":                func(p *peer, _ uint32) error { return p.fr.WriteRSTStream(1, h2.ErrCodeCancel) },
		"PRIORITY":                  func(p *peer, id uint32) error { return p.fr.WritePriority(id, h2.PriorityParam{Weight: 1}) },
		"unknown":                   func(p *peer, _ uint32) error { return p.fr.WriteRawFrame(0x77, 0, 0, nil) },
		"GOAWAY":                    func(p *peer, _ uint32) error { return p.fr.WriteGoAway(http2codec.MaxStreamID, h2.ErrCodeNo, nil) },
		"HEADERS of a gone stream": func(p *peer, _ uint32) error {
			return p.fr.WriteHeaders(h2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t, testOptions())
			p.exchange(get("/gone"), "ok")
			done, id := p.begin(get("/"))
			p.head(id, false, ":status", "200")
			go func() { // frames to this peer must not block it
				for {
					if _, err := p.net.Read(make([]byte, 64<<10)); err != nil {
						return
					}
				}
			}()
			for range 4 * http2codec.FloodBudget {
				if send(p, id) != nil {
					break // the connection has closed
				}
			}
			wait(t, done).wantError(t, want{outcome: exchange.BadResponse, progress: exchange.MaybeProcessed, demote: true, detail: "more than 1000 frames in 1s"})
		})
	}
}

// quietPeer is a peer on a pipe, within a testsupport.Bubble, after the handshake.
func quietPeer(t *testing.T, opts Options) *peer {
	t.Helper()
	client, server := net.Pipe()
	p := newPeer(t, socket.New(client), server, opts)
	server.SetDeadline(time.Time{})
	p.handshake()
	synctest.Wait()
	return p
}

// SSPs close connections that receive too many PINGs.
func TestAnIdleConnectionSendsNoPing(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := quietPeer(t, testOptions())
		time.Sleep(24 * time.Hour)
		p.do(p.fr.WritePing(false, [8]byte{'x'}))
		f, ok := p.read().(*h2.PingFrame)
		testsupport.True(t, ok && f.IsAck(), "got %v before the ACK of the test's PING", f)
	})
}

func TestFewFramesAtATimeAreNoFlood(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		p := quietPeer(t, testOptions())
		for range 30 {
			for range http2codec.FloodBudget / 10 {
				p.do(p.fr.WritePing(false, [8]byte{}))
				next[*h2.PingFrame](p)
			}
			time.Sleep(http2codec.FloodInterval / 10)
		}
	})
}

func TestFramesThatAccompanyResponsesAreNoFlood(t *testing.T) {
	p := connect(t, testOptions())
	go func() {
		for {
			f, err := p.fr.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := f.(*h2.MetaHeadersFrame); ok {
				p.do(p.fr.WriteWindowUpdate(0, 1))
				p.do(p.fr.WriteWindowUpdate(f.StreamID, 1))
				p.do(p.fr.WritePing(false, [8]byte{}))
				p.head(f.StreamID, true, ":status", "204")
			}
		}
	}()
	for range 2 * http2codec.FloodBudget {
		testsupport.NoError(t, get("/").do(p.conn).err)
	}
}
