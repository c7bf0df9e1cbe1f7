package http2

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/http2codec"
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
			w := newWire(t, wireOptions)
			w.get(1)
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
				responded = responded || f.Header().Type == http2.FrameHeaders && f.Header().StreamID == 1
			})
			got := w.owner().requests
			testsupport.True(t, responded && got[3] == nil && len(w.owner().violations) == 0, "stream 1 has its response: %v; stream 3: %v; violations: %q", responded, got[3], w.owner().violations)
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
				w := newWire(t, wireOptions)
				if open {
					w.headers(1, false, post...)
				}
				w.framer.WriteRawFrame(http2.FramePriority, 0, 1, c.payload)
				w.send()
				got, r := w.owner().violations, w.owner().requests[1]
				testsupport.True(t, slices.Equal(got, []string{c.rule}), "open %v: violations %q, want %q", open, got, c.rule)
				testsupport.True(t, !open || r.released && !r.served, "the request is %+v, want released and not served", r)
				reset := false
				w.receive(func(f http2.Frame) {
					r, ok := f.(*http2.RSTStreamFrame)
					reset = reset || ok && r.StreamID == 1 && r.ErrCode == c.code
				})
				testsupport.True(t, reset, "open %v: no RST_STREAM with %v", open, c.code)
			})
		}
	}
}

// A request whose connection ends within the same read holds nothing.
func TestRequestBeforeAViolationIsReleased(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.headers(1, false, get...)
		w.framer.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8)) // a PING on a stream
		w.send()
		err, r := <-w.served, w.owner().requests[1]
		testsupport.True(t, err != nil && len(w.owner().violations) == 1, "Serve returned %v after violations %q", err, w.owner().violations)
		testsupport.True(t, r != nil && r.released && !r.served, "the request is %+v, want released and not served", r)
	})
}

// A header block must be whole in time, even if each of its frames arrives in time.
func TestAHeaderBlockThatComesFrameByFrameMustBeWholeInTime(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		begun := time.Now()
		b := w.block(get...)
		w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:1]})
		w.send()
		for range 5 {
			time.Sleep(wireTimeout * 3 / 4)
			w.framer.WriteContinuation(1, false, nil)
			w.send()
		}
		_, ended := w.hasServed()
		testsupport.True(t, ended, "a header block is awaited after %v", time.Since(begun))
		w.wantGoAway(http2.ErrCodeNo)
	})
}

// A body has the timeout from its own first byte on, not from the header's.
func TestABodyHasItsTimeFromItsFirstByteOn(t *testing.T) {
	for _, late := range []bool{false, true} {
		testsupport.Bubble(t, func(t *testing.T) {
			w := newWire(t, wireOptions)
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
			r := w.owner().requests[1]
			testsupport.True(t, r.served != late && r.refused == late, "late: %v; served: %v, refused: %v", late, r.served, r.refused)
			r.respond <- &Response{Status: 204}
		})
	}
}

// PINGs do not keep a connection from being idle, however fast they come.
func TestPINGsDoNotKeepAConnectionFromBeingIdle(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.send()
		begun := time.Now()
		for range 10 {
			time.Sleep(wireOptions.ParkAfter * 2 / 3) // so no PING arrives at the moment when the connection is parked
			w.stall()
			w.framer.WritePing(false, [8]byte{})
			w.send() // the connection reads again before the ACK is written
			w.readAgain()
		}
		err, _ := w.hasServed()
		testsupport.ErrorIs(t, err, ErrIdle, "Serve returned %v")
		testsupport.True(t, w.conn.Idle().Equal(begun), "idle since %v, want %v", w.conn.Idle(), begun)
	})
}

// A connection that is idle but may not be parked yet waits without polling. If it polled, the
// bubble's clock would stand still, and the test would not end.
func TestAConnectionThatCannotBeParkedYetWaits(t *testing.T) {
	for name, hold := range map[string]func(w *wire) (release func(), want error){
		"unread PING": func(w *wire) (func(), error) {
			w.stall()
			w.framer.WritePing(false, [8]byte{})
			w.send()
			return w.readAgain, ErrIdle
		},
		"drain": func(w *wire) (func(), error) {
			w.conn.Drain()
			return func() {}, errDone
		},
	} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			w := newWire(t, wireOptions)
			w.send()
			time.Sleep(wireOptions.ParkAfter - time.Millisecond)
			release, want := hold(w)
			time.Sleep(announceFor / 2)
			err, ended := w.hasServed()
			testsupport.MustTrue(t, !ended, "Serve returned %v", err)
			release()
			testsupport.ErrorIs(t, <-w.served, want, "Serve returned %v")
		})
	}
}

// Bytes behind the preface may be more than a read buffer holds: max_header_bytes.
func TestManyBytesBehindThePrefaceAreTaken(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
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
		got := w.owner().violations
		testsupport.True(t, len(got) == 1, "violations: %q", got) // of PINGs there are too many
	})
}

// A client may have sent frames of a stream before it learns that adbuffer has reset the stream. They
// end nothing, although many streams were closed since, and although the connection was idle. A
// stream that was never opened is still a connection error.
func TestLateFramesOfAResetStreamAreIgnoredHoweverLateTheyCome(t *testing.T) {
	for name, closed := range map[string]int{"at once": 0, "after many streams": 2 * remembered, "after idling": -1} {
		testsupport.RunBubble(t, name, func(t *testing.T) {
			w := newWire(t, wireOptions)
			w.headers(3, false, append(slices.Clone(post), "Capital", "1")...) // malformed: reset
			w.send()
			id := uint32(5)
			for ; closed > 0; closed-- {
				w.get(id)
				w.respond(id, &Response{Status: 200})
				id += 2
			}
			if closed < 0 {
				time.Sleep(2 * wireOptions.ParkAfter)
				testsupport.ErrorIs(t, <-w.served, ErrIdle, "%v")
			}
			w.framer.WriteData(3, false, []byte("late"))
			w.headers(3, true, "late-trailer", "1")
			w.get(id)
			if closed < 0 { // a parked connection is served again when bytes have arrived
				go func() { w.served <- w.conn.Serve() }()
				synctest.Wait()
			}
			testsupport.MustTrue(t, w.owner().requests[id] != nil, "the next request was not served: %v", w.conn.err)
			w.respond(id, &Response{Status: 200})
			if closed == 0 && id == 5 {
				w.get(1)
				w.wantGoAway(http2.ErrCodeProtocol) // stream 1 was never opened
			}
		})
	}
}
