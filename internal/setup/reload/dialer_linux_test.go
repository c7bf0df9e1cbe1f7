package reload

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/http1"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// A name whose IPv6 address is a black hole fails no request, and costs few dials: the result of
// one dial holds for the next ones.
func TestBrokenIPv6CostsNoRequest(t *testing.T) {
	port := halfBroken(t)
	endpoints, err := exchange.ParseEndpoints([]string{fmt.Sprintf("http://ssp.test:%d/bid", port)})
	testsupport.NoError(t, err)
	inner, err := dial.New(dial.Options{
		Endpoints: endpoints, Mode: dial.Auto, ConnectTimeout: 2 * time.Minute,
		Lookup: func(context.Context, string, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.IPv6Loopback(), netip.MustParseAddr("127.0.0.1")}, nil
		},
	})
	testsupport.NoError(t, err)
	defer inner.Close()
	d := &dialer{dial: inner}
	d.conns.Store(&connOptions{http1: &http1.Options{MaxResponseBytes: 1, MaxResponseHeaderBytes: 1000}})
	p := pool.New(pool.Options{
		SSP: "ssp", MaxConns: 4, MaxHTTP2Conns: 1, MaxDials: 4, MaxPending: 10, PendingTimeout: time.Minute,
		BackoffMin: time.Minute, BackoffMax: time.Minute, ConnectTimeout: 2 * time.Minute, Protocol: exchange.HTTP1,
		Endpoints: []balancer.Options{{Name: endpoints.All[0].Name, Weight: 1}},
	}, d) // MaxIdle is 0: each request takes a new connection
	defer p.Close(t.Context())
	for i := range 50 {
		ex := exchange.AcquireExchange()
		ex.Deadline = time.Now().Add(20 * time.Second) // far below the connect timeout
		place, err := p.Acquire(ex)
		testsupport.MustTrue(t, err == nil, "request %d: %v", i, err)
		testsupport.True(t, ex.Peer.Addr().Is4(), "request %d: the connection leads to %v", i, ex.Peer)
		place.Release(ex)
		ex.Release()
	}
	// One attempt beside an IPv4 one, and one alone as a trial. Then the address is in back-off.
	testsupport.Between(t, p.Snapshot().Endpoints[0].DialErrors, 1, 2, "%d attempts to the black hole failed, want 1 or 2")
}

// halfBroken returns a port at which 127.0.0.1 accepts and ::1 is silent.
func halfBroken(t *testing.T) int {
	t.Helper()
	good, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	t.Cleanup(func() { good.Close() })
	port := good.Addr().(*net.TCPAddr).Port
	hole, err := net.Listen("tcp", fmt.Sprintf("[::1]:%d", port))
	testsupport.NoError(t, err)
	t.Cleanup(func() { hole.Close() })
	raw, err := hole.(*net.TCPListener).SyscallConn()
	testsupport.NoError(t, err)
	// The kernel is silent towards SYNs beyond the backlog.
	testsupport.NoError(t, raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }))
	plug, err := net.Dial("tcp", hole.Addr().String())
	testsupport.NoError(t, err)
	t.Cleanup(func() { plug.Close() })
	return port
}
