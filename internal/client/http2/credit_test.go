//go:build !race

// These tests send thousands of frames, one after the other. The race detector would make them take six times as long.

package http2

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/http2codec"
)

// Many clients return the credit of each DATA frame with two WINDOW_UPDATEs, one for the stream and
// one for the connection. Such a client lost its connection after some hundred streams. Time stands
// still here, so no allowance per second helps it.
//
// The end of each body split the connection's window into ever smaller pieces: of 10,863 DATA frames
// for 213 responses, 9,145 had less than 1 KiB.
func TestAClientMayReturnTheCreditOfEachFrame(t *testing.T) {
	testsupport.Long(t)
	for _, sizes := range []struct{ least, spread int }{{3 << 10, 1}, {50_000, 1}, {3000, 47_000}} {
		for name, late := range map[string]bool{"at once": false, "when the streams have ended": true} {
			testsupport.RunBubble(t, fmt.Sprintf("%+v, %s", sizes, name), func(t *testing.T) {
				const atOnce, streams = 100, 700
				opts := wireOptions
				opts.MaxStreams, opts.MaxUnread = atOnce, 2*atOnce*50_000
				w := newWire(t, opts)
				if late {
					w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
					w.framer.WriteWindowUpdate(0, 1<<30)
				}
				body := bytes.Repeat([]byte("x"), 50_000)
				opened, ended, small := 0, 0, 0
				request := func() {
					id := uint32(2*opened + 1)
					opened++
					w.get(id)
					if r := w.owner().requests[id]; r != nil { // else the next frame is GOAWAY
						r.respond <- &Response{Status: 200, Body: body[:sizes.least+opened*7919%sizes.spread]}
					}
					synctest.Wait()
				}
				for range atOnce {
					request()
				}
				for last := false; w.receiveOne(func(f http2.Frame) {
					last = false
					switch f := f.(type) {
					case *http2.DataFrame:
						w.framer.WriteWindowUpdate(f.StreamID, uint32(len(f.Data())))
						w.framer.WriteWindowUpdate(0, uint32(len(f.Data())))
						if last = f.StreamEnded(); !last {
							if len(f.Data()) < 1<<10 {
								small++
							}
							return
						}
						if ended++; ended%20 == 0 { // too late to cancel it
							w.framer.WriteRSTStream(f.StreamID, http2.ErrCodeCancel)
						}
					case *http2.GoAwayFrame:
						t.Fatalf("after %d of %d responses: GOAWAY %v, %s", ended, streams, f.ErrCode, f.DebugData())
					}
				}); {
					w.send()
					if last && opened < streams {
						request()
					}
				}
				testsupport.True(t, ended == streams && small <= ended, "%d of %d responses arrived; %d DATA frames were small", ended, streams, small)
			})
		}
	}
}

// Only DATA that carries a useful part of a response earns WINDOW_UPDATEs. A client cannot earn them
// by making adbuffer send its response byte by byte.
func TestAClientThatReadsByteByByteEarnsNothing(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		w.get(1)
		w.owner().requests[1].respond <- &Response{Status: 200, Body: make([]byte, 100_000)}
		for range 2 * 1000 {
			w.framer.WriteWindowUpdate(1, 1)
			w.send()
		}
		w.wantGoAway(http2.ErrCodeEnhanceYourCalm)
	})
}

// The connection's window is returned for all DATA, also for that of requests that the client cancels.
// The client sends five times the window.
func TestTheConnectionsWindowIsReturned(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		room, fields := http2codec.InitialWindow, slices.Clone(get)
		fields[1] = "POST"
		for id := uint32(1); id < 200; id += 2 {
			w.headers(id, false, fields...)
			for range 3 {
				w.receive(func(f http2.Frame) {
					if f, ok := f.(*http2.WindowUpdateFrame); ok && f.StreamID == 0 {
						room += int(f.Increment)
					}
				})
				if room -= http2codec.MaxFrameSize; room < 0 {
					t.Fatalf("stream %d: the window is used up", id)
				}
				w.framer.WriteData(id, false, make([]byte, http2codec.MaxFrameSize))
				w.send()
			}
			w.framer.WriteRSTStream(id, http2.ErrCodeCancel)
			w.send()
		}
	})
}

// A client that cancels a response that has begun to arrive does not send a flood. It may do so at
// once, if it has read enough.
func TestAClientMayCancelTheResponsesThatItHasReadInPart(t *testing.T) {
	testsupport.Long(t)
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2048})
		w.framer.WriteWindowUpdate(0, 1<<30)
		for id := uint32(1); id < 2400; id += 2 { // more than a flood
			w.get(id)
			w.respond(id, &Response{Status: 200, Body: make([]byte, 5000)})
			w.framer.WriteRSTStream(id, http2.ErrCodeCancel)
			w.send()
			code, ended := w.goAway()
			testsupport.MustTrue(t, !ended, "stream %d: GOAWAY %v", id, code)
		}
	})
}

// Requests pay for the PINGs beside them, so a client may send one with each request, at any rate.
func TestClientMayPingWithEachRequest(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, wireOptions)
		for id := uint32(1); id < 2400; id += 2 {
			w.framer.WritePing(false, [8]byte{})
			w.get(id)
			testsupport.MustTrue(t, w.owner().requests[id] != nil, "the connection ended before stream %d", id)
			w.respond(id, new(Response))
		}
	})
}
