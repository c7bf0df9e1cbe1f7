package http2server

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/http2codec"
	"adbuffer/internal/testsupport"
)

// A client may have sent frames of a stream that the last GOAWAY says is not processed. They are
// ignored, and the streams below are served: RFC 9113, section 6.8.
func TestFramesOfStreamsAboveTheLastGOAWAYAreIgnored(t *testing.T) {
	for name, frame := range map[string]func(fr *http2.Framer) error{
		"DATA":          func(fr *http2.Framer) error { return fr.WriteData(3, true, []byte("body")) },
		"RST_STREAM":    func(fr *http2.Framer) error { return fr.WriteRSTStream(3, http2.ErrCodeCancel) },
		"WINDOW_UPDATE": func(fr *http2.Framer) error { return fr.WriteWindowUpdate(3, 100) },
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			w := newWire(t, newGated, wireOptions)
			w.headers(1, true, get...)
			w.send()
			w.conn.Drain()
			time.Sleep(2 * announceFor)
			w.headers(3, false, post...)
			w.send()
			testsupport.NoError(t, frame(w.framer))
			w.send()
			w.owner().requests[1].respond <- &Response{Status: 200}
			testsupport.ErrorIs(t, <-w.served, errDone, "the connection ended with %v")
			responded := false
			w.receive(func(f http2.Frame) {
				if f, ok := f.(*http2.HeadersFrame); ok && f.StreamID == 1 {
					responded = true
				}
			})
			if got := w.owner().requests; !responded || got[3] != nil || len(w.owner().violations) > 0 {
				t.Errorf("stream 1 has its response: %v; stream 3: %v; violations: %q", responded, got[3], w.owner().violations)
			}
		})
	}
}

// A malformed PRIORITY frame is a violation of its stream, whether that is open or not. RFC 9113, section 6.3.
func TestAMalformedPRIORITYIsAViolationOfItsStream(t *testing.T) {
	for _, c := range []struct {
		payload []byte
		code    http2.ErrCode
		rule    string
	}{
		{make([]byte, 4), http2.ErrCodeFrameSize, "PRIORITY of a wrong size"},
		{[]byte{0, 0, 0, 1, 0}, http2.ErrCodeProtocol, "a stream that depends on itself"},
	} {
		for _, open := range []bool{false, true} {
			testsupport.Bubble(t, func(t *testing.T) {
				w := newWire(t, newGated, wireOptions)
				if open {
					w.headers(1, false, post...)
				}
				w.framer.WriteRawFrame(http2.FramePriority, 0, 1, c.payload)
				w.send()
				if got := w.owner().violations; !slices.Equal(got, []string{c.rule}) {
					t.Errorf("open %v: violations %q, want %q", open, got, c.rule)
				}
				if r := w.owner().requests[1]; open && (!r.released || r.served) {
					t.Errorf("the request is %+v, want released and not served", r)
				}
				reset := false
				w.hangUp()
				w.receive(func(f http2.Frame) {
					if f, ok := f.(*http2.RSTStreamFrame); ok && f.StreamID == 1 && f.ErrCode == c.code {
						reset = true
					}
				})
				testsupport.True(t, reset, "open %v: no RST_STREAM with %v", open, c.code)
			})
		}
	}
}

// A request whose connection ends within the same read holds nothing.
func TestRequestBeforeAViolationIsReleased(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, newGated, wireOptions)
		w.headers(1, false, get...)
		w.framer.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8)) // a PING on a stream
		w.send()
		if err := <-w.served; err == nil || len(w.owner().violations) != 1 {
			t.Errorf("Serve returned %v after violations %q", err, w.owner().violations)
		}
		if r := w.owner().requests[1]; r == nil || !r.released || r.served {
			t.Errorf("the request is %+v, want released and not served", r)
		}
	})
}

// A header block must be whole in time, even if each of its frames arrives in time.
func TestAHeaderBlockThatComesFrameByFrameMustBeWholeInTime(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, newGated, wireOptions)
		begun := time.Now()
		b := w.block(get...)
		w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:1]})
		w.send()
		for range 5 {
			time.Sleep(wireTimeout * 3 / 4)
			w.framer.WriteContinuation(1, false, nil)
			w.send()
		}
		select {
		case <-w.served:
		default:
			t.Errorf("a header block is awaited after %v", time.Since(begun))
			w.hangUp()
		}
		if code, ok := w.goAway(); !ok || code != http2.ErrCodeNo {
			t.Errorf("GOAWAY: %v, code %v", ok, code)
		}
	})
}

// A body has the timeout from its own first byte on, not from the header's.
func TestABodyHasItsTimeFromItsFirstByteOn(t *testing.T) {
	for _, late := range []bool{false, true} {
		testsupport.Bubble(t, func(t *testing.T) {
			w := newWire(t, newGated, wireOptions)
			w.headers(1, false, get...)
			w.send()
			time.Sleep(wireTimeout - time.Millisecond)
			w.framer.WriteData(1, false, []byte("a"))
			w.send()
			time.Sleep(wireTimeout - time.Millisecond)
			if late {
				time.Sleep(2 * time.Millisecond)
			}
			w.framer.WriteData(1, true, []byte("b"))
			w.send()
			if r := w.owner().requests[1]; r.served == late || r.refused != late {
				t.Errorf("late: %v; served: %v, refused: %v", late, r.served, r.refused)
			} else if r.served {
				r.respond <- &Response{Status: 204}
			}
			w.hangUp()
		})
	}
}

// PINGs do not keep a connection from being idle, however fast they come.
func TestPINGsDoNotKeepAConnectionFromBeingIdle(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, newGated, wireOptions)
		w.send()
		begun := time.Now()
		for range 10 {
			time.Sleep(wireOptions.ParkAfter / 2)
			w.framer.WritePing(false, [8]byte{})
			w.send()
		}
		select {
		case err := <-w.served:
			// While the SETTINGS are written, the connection is not idle: then the first PING finds it so.
			if latest := begun.Add(wireOptions.ParkAfter / 2); !errors.Is(err, ErrIdle) || w.conn.Idle().IsZero() || w.conn.Idle().After(latest) {
				t.Errorf("Serve returned %v; idle since %v, want %v at the latest", err, w.conn.Idle(), latest)
			}
		default:
			t.Error("the connection is not idle")
			w.hangUp()
		}
	})
}

// A connection that is idle but may not be parked yet waits without polling. If it polled, the
// bubble's clock would stand still, and the test would not end.
func TestAConnectionThatCannotBeParkedYetWaits(t *testing.T) {
	for name, hold := range map[string]func(w *wire) (release func(), want error){
		"unread PING": func(w *wire) (func(), error) {
			w.full = make(chan struct{})
			w.framer.WritePing(false, [8]byte{})
			w.send()
			return func() { close(w.full) }, ErrIdle
		},
		"drain": func(w *wire) (func(), error) {
			w.conn.Drain()
			return func() {}, errDone
		},
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			w := newWire(t, newGated, wireOptions)
			w.send()
			time.Sleep(wireOptions.ParkAfter - time.Millisecond)
			release, want := hold(w)
			time.Sleep(announceFor / 2)
			select {
			case err := <-w.served:
				t.Fatalf("Serve returned %v", err)
			default:
			}
			release()
			testsupport.ErrorIs(t, <-w.served, want, "Serve returned %v")
		})
	}
}

// Bytes behind the preface may be more than a read buffer holds: max_header_bytes.
func TestManyBytesBehindThePrefaceAreTaken(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, newGated, wireOptions)
		w.hangUp()
		<-w.served
		for range 20_000 {
			w.framer.WritePing(true, [8]byte{1})
		}
		in := append([]byte(http2.ClientPreface), http2codec.AppendFrameHeader(nil, 0, http2.FrameSettings, 0, 0)...)
		in = append(in, w.unsent.Bytes()...)
		c := New(w, w.conn.owner, wireOptions)
		w.conn = c
		c.Given(in)
		testsupport.True(t, c.Serve() != nil, "Serve returned nil")
		if got := w.owner().violations; len(got) != 1 {
			t.Errorf("violations: %q", got) // of PINGs there are too many
		}
	})
}

// A client may have sent frames of a stream before it learns that adbuffer has reset the stream. They
// end nothing, although many streams were closed since, and although the connection was idle. A
// stream that was never opened is still a connection error.
func TestLateFramesOfAResetStreamAreIgnoredHoweverLateTheyCome(t *testing.T) {
	for name, closed := range map[string]int{"at once": 0, "after many streams": 2 * remembered, "after idling": -1} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			w := newWire(t, newGated, wireOptions)
			w.headers(3, false, append(slices.Clone(post), "Capital", "1")...) // malformed: reset
			w.send()
			id := uint32(5)
			for ; closed > 0; closed-- {
				w.headers(id, true, get...)
				w.send()
				w.owner().requests[id].respond <- &Response{Status: 200}
				synctest.Wait()
				id += 2
			}
			if closed < 0 {
				time.Sleep(2 * wireOptions.ParkAfter)
				testsupport.ErrorIs(t, <-w.served, ErrIdle, "%v")
			}
			w.framer.WriteData(3, false, []byte("late"))
			w.headers(3, true, "late-trailer", "1")
			w.headers(id, true, get...)
			w.send()
			if closed < 0 { // a parked connection is served again when bytes have arrived
				go func() { w.served <- w.conn.Serve() }()
				synctest.Wait()
			}
			served := w.owner().requests[id]
			testsupport.MustTrue(t, served != nil, "the next request was not served: %v", w.conn.err)
			served.respond <- &Response{Status: 200}
			synctest.Wait()
			if closed == 0 && id == 5 {
				w.headers(1, true, get...)
				w.send()
				if code, ok := w.goAway(); !ok || code != http2.ErrCodeProtocol {
					t.Errorf("HEADERS on stream 1, which was never opened: GOAWAY %v, %v", code, ok)
				}
			}
			w.hangUp()
			<-w.served
		})
	}
}
