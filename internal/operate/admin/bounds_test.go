package admin

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

// A client that does not read must not keep its connection, goroutine and response for ever.
func TestAClientThatDoesNotReadIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := make(chan error, 1)
		var took time.Duration
		c := newConsole(t, loopback, func(o *Options) {
			o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(time.Hour) // a response may begin late
				start := time.Now()
				_, err := w.Write(make([]byte, 1<<20))
				took = time.Since(start)
				written <- err
			})
		})
		client, conn := net.Pipe()
		go c.Serve(&pipeListener{conn: conn, closed: make(chan struct{})})
		defer c.Close(t.Context())
		defer client.Close()
		if _, err := client.Write([]byte("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-written:
			testsupport.True(t, errors.Is(err, os.ErrDeadlineExceeded), "the handler's Write says %v", err)
			testsupport.Equal(t, took, 30*time.Second, "the client had %v to read")
		case <-time.After(2 * time.Hour):
			t.Error("the handler still writes")
		}
	})
}

// A scrape does not wait for its body: one that never arrives would hold a place for ten seconds.
func TestAScrapeDoesNotWaitForABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConsole(t, loopback, func(o *Options) {
			o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1<<20)) })
		})
		client, conn := net.Pipe()
		go c.Serve(&pipeListener{conn: conn, closed: make(chan struct{})})
		defer c.Close(t.Context())
		defer client.Close()
		begun := time.Now()
		if _, err := client.Write([]byte("GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		wantOK(t, "the scrape", client)
		if took := time.Since(begun); took > 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// pipeListener accepts one connection.
type pipeListener struct {
	conn   net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return loopback.addr }

// Scrapes need no token, so the number of scrapes that clients can keep in memory is bounded.
func TestScrapesAtOnceAreLimited(t *testing.T) {
	begun, end := make(chan struct{}, 2*maxScrapes), make(chan struct{})
	var waits atomic.Bool
	waits.Store(true)
	c := newConsole(t, beyond, func(o *Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			wait := waits.Load()
			begun <- struct{}{}
			if wait {
				<-end
			}
		})
	})
	var all sync.WaitGroup
	for range maxScrapes {
		all.Go(func() { c.ask("GET", "/metrics", "") })
		<-begun
	}
	waits.Store(false)
	if r := c.ask("GET", "/metrics", ""); r.Code != http.StatusServiceUnavailable || !strings.Contains(r.Body.String(), "16 scrapes") {
		t.Errorf("one more scrape gets %d: %s", r.Code, r.Body)
	}
	if r := c.ask("GET", "/healthz", ""); r.Code != http.StatusOK {
		t.Errorf("/healthz responds %d", r.Code)
	}
	close(end)
	all.Wait()
	if r := c.ask("GET", "/metrics", ""); r.Code != http.StatusOK {
		t.Errorf("a scrape after the others gets %d: %s", r.Code, r.Body)
	}
}

// A scrape that its client reads quickly is not dropped for further scrapes, which wait for its place.
func TestScrapesWaitForOneThatEndsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		var c connections
		handler := c.limitScrapes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-end
			text(w, http.StatusOK, "up 1")
		}))
		scrape := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return w
		}
		for range 16 {
			go scrape()
		}
		synctest.Wait()
		start := time.Now()
		w := scrape()
		testsupport.True(t, w.Code == 503 && time.Since(start) == 250*time.Millisecond, "none ends: %d after %v", w.Code, time.Since(start))

		go func() {
			time.Sleep(200 * time.Millisecond)
			end <- struct{}{} // one of them ends, and all others 10 ms later
			time.Sleep(10 * time.Millisecond)
			close(end)
		}()
		w = scrape()
		testsupport.Equal(t, w.Code, 200, "one ends after 200 ms: %d")
	})
}
