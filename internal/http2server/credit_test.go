package http2server

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"

	"adbuffer/internal/testsupport"
)

// Many clients return the credit of each DATA frame with two WINDOW_UPDATEs, one for the stream and
// one for the connection. Such a client lost its connection after some hundred streams. Time stands
// still here, so no allowance per second helps it.
func TestAClientMayReturnTheCreditOfEachFrame(t *testing.T) {
	for _, size := range []int{3 << 10, 50_000} {
		for name, late := range map[string]bool{"at once": false, "when the streams have ended": true} {
			t.Run(fmt.Sprintf("%d bytes, %s", size, name), func(t *testing.T) {
				testsupport.Bubble(t, func(t *testing.T) {
					const atOnce, rounds = 250, 8
					opts := wireOptions
					opts.MaxStreams, opts.MaxUnread = atOnce, atOnce*(size+1000+streamCost)
					w := newWire(t, newGated, opts)
					body := bytes.Repeat([]byte("x"), size)
					if late {
						w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
						w.framer.WriteWindowUpdate(0, 1<<30)
					}
					id, ended := uint32(1), 0
					for range rounds {
						first := id
						for ; id < first+2*atOnce; id += 2 {
							w.headers(id, true, get...)
						}
						w.send()
						for i := first; i < id; i += 2 {
							w.owner().requests[i].respond <- &Response{Status: 200, Body: body}
						}
						synctest.Wait()
						for w.unreadBytes() > 0 {
							w.receive(func(f http2.Frame) {
								switch f := f.(type) {
								case *http2.DataFrame:
									w.framer.WriteWindowUpdate(f.StreamID, uint32(len(f.Data())))
									w.framer.WriteWindowUpdate(0, uint32(len(f.Data())))
									if f.StreamEnded() {
										ended++
									}
									if f.StreamEnded() && f.StreamID%20 == 1 { // too late to cancel it
										w.framer.WriteRSTStream(f.StreamID, http2.ErrCodeCancel)
									}
								case *http2.GoAwayFrame:
									t.Fatalf("after %d of %d responses: GOAWAY %v, %s", ended, rounds*atOnce, f.ErrCode, f.DebugData())
								}
							})
							w.send()
						}
					}
					if ended != rounds*atOnce {
						t.Errorf("%d of %d responses arrived", ended, rounds*atOnce)
					}
					w.hangUp()
				})
			})
		}
	}
}

// Only DATA that carries a useful part of a response earns WINDOW_UPDATEs. A client cannot earn them
// by making adbuffer send its response byte by byte.
func TestAClientThatReadsByteByByteEarnsNothing(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, newGated, wireOptions)
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		w.headers(1, true, get...)
		w.send()
		w.owner().requests[1].respond <- &Response{Status: 200, Body: make([]byte, 100_000)}
		for range 2 * 1000 {
			w.framer.WriteWindowUpdate(1, 1)
			w.send()
		}
		if code, ok := w.goAway(); !ok || code != http2.ErrCodeEnhanceYourCalm {
			t.Errorf("GOAWAY: %v, code %v", ok, code)
		}
		w.hangUp()
	})
}

// A client that cancels a response that has begun to arrive does not send a flood. It may do so at
// once, if it has read enough.
func TestAClientMayCancelTheResponsesThatItHasReadInPart(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		w := newWire(t, newGated, wireOptions)
		w.framer.WriteWindowUpdate(0, 1<<30)
		for id := uint32(1); id < 4000; id += 2 {
			w.headers(id, true, get...)
			w.send()
			w.owner().requests[id].respond <- &Response{Status: 200, Body: make([]byte, 100_000)}
			synctest.Wait()
			w.framer.WriteRSTStream(id, http2.ErrCodeCancel)
			w.send()
			if code, ok := w.goAway(); ok {
				t.Fatalf("stream %d: GOAWAY %v", id, code)
			}
		}
		w.hangUp()
	})
}

// unreadBytes returns how many bytes the connection has written that the test has not received.
func (w *wire) unreadBytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Len()
}
