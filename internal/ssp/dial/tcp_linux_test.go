package dial

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestSocketsFindPeersThatDieSilently(t *testing.T) {
	p := listen(t, waitForEnd)
	r := p.dial(t, newDialer(t, p.options(t, "http", "ssp.test")), true)
	raw, err := r.Socket.Conn.(syscall.Conn).SyscallConn()
	testsupport.NoError(t, err)
	for _, opt := range []struct {
		name               string
		level, name2, want int
	}{
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 30_000},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 15},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 5},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
	} {
		var got int
		var optErr error
		testsupport.NoError(t, raw.Control(func(fd uintptr) { got, optErr = unix.GetsockoptInt(int(fd), opt.level, opt.name2) }))
		testsupport.NoError(t, optErr)
		testsupport.Equal(t, got, opt.want, "%[2]s is %[1]d", opt.name)
	}
}

// tcpBlackHole returns an address whose SYNs get no response: its accept queue is full, and no
// process accepts.
func tcpBlackHole(t *testing.T) exchange.Address {
	t.Helper()
	ln := testsupport.Listen(t)
	raw, err := ln.(*net.TCPListener).SyscallConn()
	testsupport.NoError(t, err)
	var listenErr error
	testsupport.NoError(t, raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), 0) }))
	testsupport.NoError(t, listenErr)
	plug, err := net.Dial("tcp", ln.Addr().String())
	testsupport.NoError(t, err)
	t.Cleanup(func() { plug.Close() })
	return exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test"}, AddrPort: ln.Addr().(*net.TCPAddr).AddrPort()}
}

func TestASYNWithoutResponseEndsAtTheConnectTimeout(t *testing.T) {
	a := tcpBlackHole(t)
	o := (&peer{port: a.AddrPort.Port()}).options(t, "https", "ssp.test")
	o.ConnectTimeout = 30 * time.Millisecond // the handshake's timeout is a minute
	e := dialError(t, newDialer(t, o), a, exchange.ConnectFailed, a.String(), "30ms", "timeouts.connect")
	testsupport.Equal(t, kind(e), "timeout", "%[2]v is counted as %[1]s", e)
}

func TestASYNWithoutResponseEndsWithTheContext(t *testing.T) {
	a := tcpBlackHole(t)
	d := newDialer(t, (&peer{port: a.AddrPort.Port()}).options(t, "http", "ssp.test"))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	r, err := d.Dial(ctx, true, a)
	checkError(t, err, exchange.ConnectFailed, "cancelled")
	testsupport.True(t, errors.Is(err, context.Canceled) && r.TCP > 0, "%v after %v", err, r.TCP)
}
