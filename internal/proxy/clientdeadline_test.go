package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/proxy"
	"adbuffer/internal/route"
	"adbuffer/internal/testsupport"
)

// Each write has its own deadline. A response that waits for the client must not be cut by the
// deadline of an earlier response.
func TestResponsesToASlowReaderAreNotCutByTheDeadlineOfAnEarlierWrite(t *testing.T) {
	t.Parallel()
	testsupport.Long(t)
	const timeout = 3 * time.Second // a slow machine needs some of it for a megabyte over TLS
	ad := strings.Repeat("x", 1_000_000)
	for name, row := range map[string]struct{ tls, http2 bool }{"HTTP/1": {}, "TLS": {tls: true}, "HTTP/2": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModeProxy(t, route.Single, func(o *proxy.Options, rt *route.Route) {
				o.WriteTimeout, o.MaxBufferedBytes = timeout, 4<<20
				if row.tls {
					overTLS(o, rt)
				}
			}, bids("a", ad))
			gate := new(sync.Mutex)
			client := m.unixClient(row.http2, gate)
			scheme := "http"
			if row.tls {
				scheme = "https"
			}
			for i := range 3 {
				if i > 0 {
					time.Sleep(timeout + 100*time.Millisecond)
				}
				gate.Lock() // the client reads nothing, and the write waits
				time.AfterFunc(100*time.Millisecond, gate.Unlock)
				res, err := client.Get(scheme + "://adbuffer.test/fill")
				testsupport.MustTrue(t, err == nil, "response %d: %v", i, err)
				if body, err := io.ReadAll(res.Body); err != nil || len(body) != len(ad) {
					t.Fatalf("response %d was cut to %d bytes: %v", i, len(body), err)
				}
			}
		})
	}
}

// unixClient is a client on a Unix socket with buffers of a fixed size, so long responses have to
// wait for it. It reads while it can lock gate.
func (m *modeProxy) unixClient(http2 bool, gate *sync.Mutex) *http.Client {
	m.t.Helper()
	l, err := net.Listen("unix", filepath.Join(m.t.TempDir(), "s"))
	testsupport.NoError(m.t, err)
	served := make(chan error, 1)
	go func() { served <- m.p.Serve(l) }()
	m.t.Cleanup(func() {
		l.Close()
		if err := <-served; err != nil {
			m.t.Error(err)
		}
	})
	client := m.client(http2)
	transport := client.Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
		return gatedConn{c, gate}, err
	}
	return client
}

type gatedConn struct {
	net.Conn
	gate *sync.Mutex
}

func (c gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.Lock()
	defer c.gate.Unlock()
	return n, err
}

// The deadline of the wait for a request does not apply to the requests after that wait.
func TestPipelinedRequestIsNotRefusedForTheIdleWaitBeforeTheFirst(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %v", overTLS), func(t *testing.T) {
			slow := bidder{name: "a", handler: func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery == "slow" {
					time.Sleep(300 * time.Millisecond)
				}
				io.WriteString(w, "{}")
			}}
			m := newModeProxy(t, route.Single, tlsIf(overTLS), slow)
			c := m.dialMaybeTLS(overTLS)
			in := bufio.NewReader(c)
			write := func(s string) {
				t.Helper()
				if _, err := io.WriteString(c, s); err != nil {
					t.Fatal(err)
				}
			}
			read := func() {
				t.Helper()
				res, err := http.ReadResponse(in, nil)
				testsupport.NoError(t, err)
				io.Copy(io.Discard, res.Body)
				testsupport.MustEqual(t, res.StatusCode, http.StatusOK, "status %d, want 200")
			}
			write(getFill)
			read()
			time.Sleep(50 * time.Millisecond) // shorter than the idle timeout
			half := len(getFill) / 2
			write(strings.Replace(getFill, "/fill", "/fill?slow", 1) + getFill[:half])
			read()
			time.Sleep(50 * time.Millisecond)
			write(getFill[half:])
			read()
		})
	}
}

func tlsIf(on bool) func(*proxy.Options, *route.Route) {
	if on {
		return overTLS
	}
	return nil
}

func (m *modeProxy) dialMaybeTLS(overTLS bool) net.Conn {
	m.t.Helper()
	if overTLS {
		return m.dialTLS("http/1.1")
	}
	return m.dial()
}
