package http1

import (
	"bytes"
	"io"
	"net/netip"
	"testing"
	"time"

	"adbuffer/internal/client/http2"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/http2codec"

	"go.uber.org/zap"
	h2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// opens is a Handler that reports each request over HTTP/2, and resets its stream.
type opens struct {
	notFound
	opened chan struct{}
}

func (o opens) Open(*Conn, *http2.Stream, *http2codec.RequestBlock, bool) (http2.Request, *http2.Response) {
	o.opened <- struct{}{}
	return nil, &http2.Response{Status: 404}
}

// After a TLS handshake, a connection that waits may make room as one that greets. One whose Read has returned bytes may
// not: its request is about to be forwarded.
func TestAConnectionThatHandlesBytesAfterItsHandshakeMakesNoRoom(t *testing.T) {
	for _, c := range []struct {
		greeting, reading bool
		want              progress
	}{{true, false, greets}, {true, true, greets}, {false, true, greets}, {false, false, heard}} {
		one := &unfinishedConn{served: new(Conn)}
		one.flight.Store(time.Now().UnixNano())
		one.greeting.Store(c.greeting)
		one.reading.Store(c.reading)
		testsupport.Equal(t, new(clients).progressLocked(one), c.want, "progress %[1]v for %+[2]v", c)
	}
}

// A connection that has been chosen to make room may get the rest of its request before it is closed. An
// SSP would then receive the request, and its client no response.
func TestARequestOnAnHTTP2ConnectionThatMakesRoomIsNotServed(t *testing.T) {
	handler := opens{opened: make(chan struct{}, 1)}
	s := New(handler, Options{
		MaxConnections: 10, MaxStreams: 100, MaxHeaderBytes: 1024, H2C: true,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}, zap.NewNop())
	addr, end := serve(t, s)
	c := dial(t, addr)
	defer c.Close()

	send := func(b []byte) {
		t.Helper()
		_, err := c.Write(b)
		testsupport.NoError(t, err)
	}
	header := requestHeader(t)
	b := http2codec.AppendFrameHeader([]byte(h2.ClientPreface), 0, h2.FrameSettings, 0, 0)
	b = append(http2codec.AppendFrameHeader(b, 8, h2.FramePing, 0, 0), "12345678"...)
	send(append(b, header[:len(header)-1]...))
	for frames := h2.NewFramer(nil, c); ; { // the reader reads all that has arrived before it answers the PING
		f, err := frames.ReadFrame()
		testsupport.NoError(t, err)
		if f.Header().Type == h2.FramePing {
			break
		}
	}
	testsupport.Eventually(t, "the connection waits for the last byte of a header", func() bool {
		_, waiting := s.clients.countUnfinished()
		return waiting == 1
	})
	one := s.clients.takeUnfinished(netip.Addr{}, 0, 0)
	testsupport.MustTrue(t, one != nil, "the connection makes no room")

	send(header[len(header)-1:])
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		io.Copy(io.Discard, c)
	}()
	select {
	case <-handler.opened:
		t.Error("the request was served")
	case <-closed:
	}
	s.clients.serve(one).drop()
	<-closed
	end()
}

// requestHeader returns a HEADERS frame of a GET, on stream 1.
func requestHeader(t *testing.T) []byte {
	t.Helper()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
		testsupport.NoError(t, e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	return append(http2codec.AppendFrameHeader(nil, block.Len(), h2.FrameHeaders, h2.FlagHeadersEndStream|h2.FlagHeadersEndHeaders, 1), block.Bytes()...)
}
