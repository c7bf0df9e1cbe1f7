package admin

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/logs"
)

// listening serves c on a socket of loopback, and returns its address.
func (c *console) listening() string {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(c.t, err)
	served := make(chan error, 1)
	go func() { served <- c.Serve(l) }()
	c.t.Cleanup(func() {
		c.Close(c.t.Context())
		if err := <-served; err != nil {
			c.t.Error(err)
		}
	})
	return l.Addr().String()
}

// dial connects, and sends a GET of path.
func dial(t *testing.T, addr, path string) net.Conn {
	t.Helper()
	return dialTo(t, addr, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

// dialTo connects, and sends text.
func dialTo(t *testing.T, addr, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	testsupport.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testsupport.Patience))
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantOK reads a response with its whole body.
func wantOK(t *testing.T, what string, c net.Conn) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	testsupport.MustTrue(t, err == nil, "%s: %v", what, err)
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%s: %d and %d bytes, %v", what, res.StatusCode, len(body), err)
	}
}

// wantClosed reads until the other side has closed c.
func wantClosed(t *testing.T, what string, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s is still open", what)
	}
}

// Clients must not open so many connections that the process has no descriptor left for the connections of clients
// and SSPs.
func TestConnectionsThatAreIdleForLongestMakeRoom(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	c := newConsole(t, loopback, func(o *Options) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(begun)
			<-end
		})
	})
	addr := c.listening()
	scrape := dial(t, addr, "/metrics")
	<-begun
	var idle []net.Conn
	for range maxConnections - 1 {
		idle = append(idle, dial(t, addr, "/healthz"))
		wantOK(t, "a request within the limit", idle[len(idle)-1])
	}
	for i := range 2 {
		wantOK(t, "a request beyond the limit", dial(t, addr, "/healthz"))
		wantClosed(t, "the connection that was idle for longest", idle[i])
	}
	if n, dropped := c.connections.count(), c.connections.dropped.Load(); n != maxConnections || dropped != 2 {
		t.Errorf("%d connections are open, and %d were dropped", n, dropped)
	}
	close(end)
	wantOK(t, "the request that was in progress", scrape)
}

// Sixty-four requests whose bodies never arrive must not keep Prometheus and the kubelet away.
func TestRequestsThatAreUnfinishedForLongestMakeRoom(t *testing.T) {
	c := newConsole(t, loopback, nil)
	addr := c.listening()
	var unfinished []net.Conn
	for range maxConnections {
		conn := dialTo(t, addr, "PUT /log/level HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
		unfinished = append(unfinished, conn)
		begun := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n")) // the handler reads the body
		if _, err := io.ReadFull(conn, begun); err != nil || !strings.Contains(string(begun), " 100 ") {
			t.Fatalf("the request does not begin: %q, %v", begun, err)
		}
	}
	for i, path := range []string{"/metrics", "/healthz"} {
		wantOK(t, path, dial(t, addr, path))
		wantClosed(t, "the request that was unfinished for longest", unfinished[i])
	}
}

// Requests that take long must not keep all other requests away.
func TestRequestsThatHaveTakenLongestMakeRoom(t *testing.T) {
	begun := make(chan struct{})
	c := newConsole(t, loopback, func(o *Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { text(w, http.StatusOK, "up 1") })
		o.Pools = func(string) any { begun <- struct{}{}; <-t.Context().Done(); return nil }
	})
	addr := c.listening()
	var long []net.Conn
	for range maxConnections {
		long = append(long, dial(t, addr, "/pools"))
		<-begun
	}
	wantOK(t, "a scrape", dial(t, addr, "/metrics"))
	wantClosed(t, "the request that has taken longest", long[0])
}

// Sixteen clients that do not read their scrapes must not keep Prometheus from scraping.
func TestAScrapeThatIsNotReadMakesRoom(t *testing.T) {
	large := make([]byte, 16<<20) // more than the sockets hold
	c := newConsole(t, loopback, func(o *Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(large) })
	})
	addr := c.listening()
	var unread []net.Conn
	for i := range maxScrapes {
		unread = append(unread, dial(t, addr, "/metrics"))
		for limit := time.Now().Add(testsupport.Patience); c.writing() <= i; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%d of %d scrapes are being read", c.writing(), i+1)
			}
		}
	}
	wantOK(t, "one more scrape", dial(t, addr, "/metrics"))
	wantClosed(t, "the scrape that was unread for longest", unread[0])
	if n, dropped := c.writing(), c.connections.dropped.Load(); n != maxScrapes-1 || dropped != 1 {
		t.Errorf("%d scrapes are in progress, and %d were dropped", n, dropped)
	}
}

// writing returns how many scrapes are being read.
func (c *console) writing() (n int) {
	c.connections.mu.Lock()
	defer c.connections.mu.Unlock()
	for _, one := range c.connections.open {
		if !one.scrape.IsZero() {
			n++
		}
	}
	return n
}

// While anybody follows requests, each request costs a record.
func TestEightOperatorsMayFollowRequestsAtOnce(t *testing.T) {
	c := newConsole(t, loopback, func(o *Options) { o.Requests = logs.NewRequestLog(zap.NewNop(), nil) })
	addr := c.listening()
	follow := func() (status int, conn net.Conn) {
		conn = dial(t, addr, "/tail")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		testsupport.NoError(t, err)
		return res.StatusCode, conn
	}
	var last net.Conn
	for n := range 8 {
		var status int
		status, last = follow()
		testsupport.MustEqual(t, status, http.StatusOK, "reader %[2]d of /tail gets %[1]d", n+1)
	}
	for range 2 { // a refused one does not count
		status, _ := follow()
		testsupport.Equal(t, status, http.StatusTooManyRequests, "one more gets %d")
	}
	last.Close()
	testsupport.Eventually(t, "a reader that disconnects makes room", func() bool {
		status, _ := follow()
		return status == http.StatusOK
	})
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
