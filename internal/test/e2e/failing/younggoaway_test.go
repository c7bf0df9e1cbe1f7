package failing

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// startRestartingSSP runs an HTTP/2 SSP that takes 200 ms for a request. It ends its first connection as a
// server does that restarts: it processes one request, and leaves out all that follow. restarted is closed
// when the first request has arrived on another connection.
func startRestartingSSP(t *testing.T) (url string, restarted <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	var conns sync.WaitGroup
	var once sync.Once
	arrived := make(chan struct{})
	serve := func(c net.Conn) {
		new(http2.Server).ServeConn(c, &http2.ServeConnOpts{ //nolint:staticcheck // net/http serves listeners, and the test serves one connection
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				once.Do(func() { close(arrived) })
				time.Sleep(200 * time.Millisecond)
				io.WriteString(w, "an ad")
			})})
	}
	conns.Go(func() {
		restart := true
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			end := restart
			restart = false
			conns.Go(func() {
				defer c.Close()
				if end {
					leaveOutAllButOne(c)
				} else {
					serve(c)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() })
	return "http://" + l.Addr().String() + "/bid", arrived
}

// leaveOutAllButOne responds to the first of 40 requests on c, and leaves out the others.
func leaveOutAllButOne(c net.Conn) {
	io.CopyN(io.Discard, c, int64(len(http2.ClientPreface)))
	fr := http2.NewFramer(c, c)
	fr.WriteSettings()
	for n := 0; n < 40; {
		f, err := fr.ReadFrame()
		if err != nil {
			return
		}
		if _, ok := f.(*http2.HeadersFrame); ok {
			n++
		}
	}
	fr.WriteGoAway(1, http2.ErrCodeNo, nil)
	var block hpackBlock
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.of(":status", "200"), EndHeaders: true})
	fr.WriteData(1, true, []byte("an ad"))
	io.Copy(io.Discard, c) // until adbuffer has closed the connection
}

// hpackBlock collects the bytes of a header block.
type hpackBlock []byte

func (b *hpackBlock) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func (b *hpackBlock) of(name, value string) []byte {
	hpack.NewEncoder(b).WriteField(hpack.HeaderField{Name: name, Value: value})
	return *b
}

// An SSP that restarts ends a connection on which it has processed one request and leaves out 39. Its next
// connections keep their places: the 100 requests that arrive then need not wait for one.
func TestARestartOverHTTP2TakesNoPlaces(t *testing.T) {
	t.Parallel()
	url, restarted := startRestartingSSP(t)
	ab := e2e.Start(t, e2e.Single(url, "protocol: h2c", "pool: {pending_timeout: 50ms, max_http2_conns: 4}"))
	var all e2e.Tally
	ab.Concurrently(140, func(w *e2e.Worker) error {
		if w.Id >= 40 {
			<-restarted
		}
		a, err := w.Exchange("GET", "/fillbuffer", "")
		if err == nil {
			all.Add(a)
		}
		return err
	})
	if n := all.Of("ssp/openx 200"); n != 140 {
		t.Errorf("%d of 140 requests were filled: %v", n, &all)
	}
	ab.WantMetric(0, "adbuffer_ssp_requests_total", "outcome=pending_timeout")
}
