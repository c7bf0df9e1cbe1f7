package http2

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/test/testsupport"
)

// A frame that came in two parts does not bound the time of what follows it.
func TestAFrameInTwoPartsEndsNoLaterWait(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.get(1) // keeps the connection from being idle
		w.framer.WritePing(false, [8]byte{})
		rest := bytes.Clone(w.unsent.Bytes()[5:])
		w.unsent.Truncate(5)
		w.send()
		time.Sleep(wireTimeout / 2)
		w.unsent.Write(rest)
		w.send()
		time.Sleep(2 * wireTimeout)
		w.respond(1, new(Response))
		code, ended := w.goAway()
		testsupport.True(t, !ended, "GOAWAY with code %v, although each frame arrived in time", code)
	})
}

// A client that allows no dynamic table can decode all responses.
func TestResponsesUseNoLargerTableThanTheClientAllows(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
		for _, id := range []uint32{1, 3, 5} {
			w.get(id)
			w.respond(id, &Response{Status: 200, Fields: []byte("Server: the-same-each-time\r\n")})
		}
		decoder := hpack.NewDecoder(0, nil)
		blocks := 0
		w.receive(func(f http2.Frame) {
			if h, is := f.(*http2.HeadersFrame); is {
				blocks++
				_, err := decoder.DecodeFull(h.HeaderBlockFragment())
				testsupport.True(t, err == nil, "the response on stream %d: %v", h.StreamID, err)
			}
		})
		testsupport.Equal(t, blocks, 3, "%d responses")
	})
}

// The first frame says what the client may send.
func TestFirstSettingsAreThoseOfTheOptions(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.send()
		got := make(map[http2.SettingID]uint32)
		w.receive(func(f http2.Frame) {
			if f, is := f.(*http2.SettingsFrame); is {
				f.ForeachSetting(func(s http2.Setting) error { got[s.ID] = s.Val; return nil })
			}
		})
		if o := &w.conn.opts; got[http2.SettingMaxConcurrentStreams] != uint32(o.MaxStreams) || got[http2.SettingInitialWindowSize] != uint32(o.StreamWindow) || got[http2.SettingMaxHeaderListSize] != uint32(o.MaxHeaderList) {
			t.Errorf("the settings are %v, want those of %+v", got, o)
		}
	})
}

// A connection that is about to be parked has no goroutine left, though it has served requests. The
// end of the bubble would report a worker.
func TestAnIdleConnectionHasNoWorker(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.headers(1, true, get...)
		w.get(3)
		w.respond(1, new(Response))
		w.respond(3, new(Response))
		time.Sleep(2 * wireOptions.ParkAfter)
		testsupport.ErrorIs(t, <-w.served, ErrIdle, "Serve returned %v")
	})
}

// A drain waits for the last request that runs, even if its client has reset the stream, and for
// nothing else.
func TestADrainEndsWithTheLastRequestOfAResetStream(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.get(1)
		w.framer.WriteRSTStream(1, http2.ErrCodeCancel)
		w.send()
		w.conn.Drain()
		time.Sleep(2 * announceFor)
		synctest.Wait()
		err, ended := w.hasServed()
		testsupport.MustTrue(t, !ended, "the drain ended with %v while a request was being served", err)
		w.respond(1, new(Response))
		err, ended = w.hasServed()
		testsupport.True(t, ended && errors.Is(err, errDone), "after the last request, the drain ended: %v, with %v, want %v", ended, err, errDone)
	})
}

// A client may send a request that it had begun behind the ACK of a drain's PING. It reads the GOAWAY that says that the
// request is not processed, instead of a reset.
func TestARequestBehindTheACKOfADrainMeetsAnOpenConnection(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.send()
		w.conn.Drain()
		testsupport.NoError(t, w.framer.WritePing(true, drainPing))
		w.send()
		time.Sleep(99 * time.Millisecond)
		w.headers(1, false, post...)
		testsupport.NoError(t, w.framer.WriteData(1, true, []byte("body")))
		w.send()
		err, ended := w.hasServed()
		testsupport.MustTrue(t, !ended, "the connection ended with %v", err)
		var last []uint32
		w.receive(func(f http2.Frame) {
			if f, ok := f.(*http2.GoAwayFrame); ok {
				last = append(last, f.LastStreamID)
			}
		})
		testsupport.True(t, slices.Equal(last, []uint32{1<<31 - 1, 0}) && w.owner().requests[1] == nil, "the last streams of the GOAWAYs are %v", last)
		testsupport.ErrorIs(t, <-w.served, errDone, "the connection ended with %v")
	})
}
