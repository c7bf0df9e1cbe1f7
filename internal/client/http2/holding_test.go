package http2

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"adbuffer/internal/test/testsupport"
)

// A burst of streams needs as many goroutines. The connection must not keep 240 goroutines for ten requests a
// second, or for 240 responses that the client does not read.
func TestGoroutinesOfABurstEndWhileItsResponsesAreUnread(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		const burst = 240
		opts := wireOptions
		opts.MaxStreams, opts.MaxUnread = burst, burst*2*streamCost
		before := runtime.NumGoroutine()
		w := newWire(t, opts)
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for id := uint32(1); id < 2*burst; id += 2 {
			w.headers(id, true, get...)
		}
		w.send()
		for _, r := range w.owner().requests {
			r.respond <- &Response{Status: 200, Body: []byte("an ad")}
		}
		synctest.Wait()
		w.conn.mu.Lock()
		n := len(w.conn.workers)
		w.conn.mu.Unlock()
		testsupport.MustEqual(t, n, burst, "%d goroutines wait after the burst")
		time.Sleep(surplusFor)
		synctest.Wait()
		for i := 0; i < 1000 && runtime.NumGoroutine()-before > 10; i++ {
			runtime.Gosched() // the runtime's number is not exact while goroutines end
		}
		testsupport.AtMost(t, runtime.NumGoroutine()-before, 10, "%d goroutines after %v", surplusFor)
		// The connection serves on.
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
		w.send()
		ended := 0
		w.receive(func(f http2.Frame) {
			if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
				ended++
			}
		})
		testsupport.Equal(t, ended, burst, "%d of %d responses arrived", burst)
	})
}

// A client that reads nothing makes adbuffer hold only what fits the buffer, however long the headers of its
// responses are. The bound includes headers and control frames.
func TestHeadersOfResponsesWaitForRoomInTheBuffer(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		const streams = 200
		opts := wireOptions
		opts.MaxStreams, opts.MaxUnread = streams, 16<<20
		w := newWire(t, opts)
		w.send()
		w.stall()
		fields := []byte("X-Long: " + strings.Repeat("v", 10_000) + "\r\nContent-Length: 5\r\n")
		for id := uint32(1); id < 2*streams; id += 2 {
			w.headers(id, true, get...)
		}
		w.send()
		for id := uint32(1); id < 2*streams; id += 2 {
			w.respond(id, &Response{Status: 200, Fields: fields, Body: []byte("an ad"), Trailers: []byte("X-Last: 1\r\n")})
		}
		for range 500 {
			w.framer.WritePing(false, [8]byte{})
			if w.unsent.Len() > 4000 {
				w.send()
			}
		}
		testsupport.AtMost(t, len(w.conn.out.Frames), readPause+11_000, "the buffer holds %d bytes")
		testsupport.AtLeast(t, w.conn.held, streams*len(fields), "%d bytes count as unread")
		testsupport.Equal(t, w.owner().unsent, 0, "%d bytes of frames count before a write waits")
		w.conn.WriteWaits()
		testsupport.AtLeast(t, w.owner().unsent, 64<<10, "%d bytes of frames count while a write waits")
		testsupport.AtLeast(t, w.owner().unsent, len(w.conn.out.Frames), "%d bytes of frames count while a write waits")
		w.readAgain()
		synctest.Wait()
		got := map[uint32]string{}
		w.receive(func(f http2.Frame) {
			switch f := f.(type) {
			case *http2.HeadersFrame:
				got[f.StreamID] += map[bool]string{true: "trailer", false: "header "}[f.StreamEnded()]
			case *http2.DataFrame:
				got[f.StreamID] += string(bytes.TrimSpace(f.Data())) + " "
			}
		})
		for id := uint32(1); id < 2*streams; id += 2 {
			testsupport.MustEqual(t, got[id], "header an ad trailer", "stream %[2]d got %[1]q", id)
		}
		testsupport.Equal(t, w.conn.held, 0, "%d bytes are still unread")
		testsupport.Equal(t, w.owner().unsent, 0, "%d bytes of frames count after the client has read")
	})
}

// A client that read slowly lost its connection at once when other clients took the memory for unread
// responses.
func TestAResponseInTheBufferHasAMomentBeforeItsConnectionIsDropped(t *testing.T) {
	for name, drop := range map[string]func(*Conn){"the response": func(c *Conn) { c.DropUnread(1) }, "the frames": (*Conn).DropUnsent} {
		for _, reads := range []bool{true, false} {
			testsupport.Bubble(t, func(t *testing.T) {
				w := newWire(t, wireOptions)
				w.send()
				w.stall()
				w.get(1)
				w.respond(1, &Response{Status: 200, Body: []byte("an ad")})
				w.conn.WriteWaits()
				drop(w.conn)
				time.Sleep(dropAfter / 2)
				if reads {
					w.readAgain()
				}
				time.Sleep(dropAfter)
				synctest.Wait()
				testsupport.Equal(t, w.closed(), !reads, "%[3]s dropped, a client that reads %[2]v: closed %[1]v", reads, name)
				if !reads {
					w.readAgain()
				}
			})
		}
	}
}

// A client lost its connection after a hundred responses that were dropped because other clients took the
// memory for unread responses. A client whose machine stalls for a moment does not lose it either.
func TestOnlyAClientThatGoesOnNotReadingLosesItsConnection(t *testing.T) {
	for _, test := range []struct {
		waits  time.Duration
		rounds int
		closed bool
	}{{0, 8, false}, {dropAfter, 1, false}, {dropAfter, 3, true}} {
		testsupport.Bubble(t, func(t *testing.T) {
			opts := wireOptions
			opts.MaxStreams, opts.MaxUnread = 200, 16<<20
			w := newWire(t, opts)
			w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			for next := uint32(1); next < uint32(2*opts.MaxStreams*test.rounds); {
				first := next
				for ; next < first+uint32(2*opts.MaxStreams); next += 2 {
					w.headers(next, true, get...)
				}
				w.send()
				for id := first; id < next && w.owner().requests[id] != nil; id += 2 {
					w.owner().requests[id].respond <- &Response{Status: 200, Body: []byte("an ad")}
				}
				synctest.Wait()
				time.Sleep(test.waits)
				for id := first; id < next; id += 2 {
					w.conn.DropUnread(id)
				}
				synctest.Wait()
			}
			testsupport.Equal(t, w.closed(), test.closed, "%[2]d times all responses dropped after %[3]v: the connection is closed: %[1]v", test.rounds, test.waits)
		})
	}
}
