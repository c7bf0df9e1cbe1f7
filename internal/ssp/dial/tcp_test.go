package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/socket"
)

func TestCleartextSpeaksWhatTheModeSays(t *testing.T) {
	p := listen(t, waitForEnd)
	for mode, want := range map[Mode]exchange.Protocol{
		Auto: exchange.HTTP1, HTTP1: exchange.HTTP1, HTTP1Pipelined: exchange.HTTP1Pipelined, H2C: exchange.HTTP2,
	} {
		o := p.options(t, "http", "ssp.test")
		o.Mode = mode
		d := newDialer(t, o)
		testsupport.Equal(t, d.Protocol(), want, "%[2]s: protocol %[1]v before the dial", mode)
		r := p.dial(t, d, true)
		testsupport.True(t, r.Protocol == want && r.Conn == net.Conn(r.Socket) && r.TCP > 0 && r.TLS == 0, "%s: %+v, want %v", mode, r, want)
		testsupport.True(t, r.Socket.Peek() == socket.Quiet, "%s: the new socket is not quiet", mode)
	}
}

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) exchange.Address {
	t.Helper()
	ln := testsupport.Listen(t)
	a := exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test"}, AddrPort: ln.Addr().(*net.TCPAddr).AddrPort()}
	testsupport.NoError(t, ln.Close())
	return a
}

func TestARefusedConnectionNamesTheAddress(t *testing.T) {
	a := closedPort(t)
	d := newDialer(t, (&peer{port: a.AddrPort.Port()}).options(t, "http", "ssp.test"))
	e := dialError(t, d, a, exchange.ConnectFailed, a.String())
	testsupport.Equal(t, kind(e), "refused", "%[2]v is counted as %[1]s", e)
}

func TestAddressesThatNoSSPHasAreNotDialled(t *testing.T) {
	d := newDialer(t, (&peer{port: 1}).options(t, "http", "ssp.test"))
	for _, a := range []exchange.Address{{}, {Endpoint: exchange.Endpoint{Host: "ssp.test"}, AddrPort: netip.MustParseAddrPort("169.254.169.254:80")}} {
		dialError(t, d, a, exchange.ConnectFailed, "never dialled")
	}
}

func TestADialThatIsCalledOffSaysSo(t *testing.T) {
	p := listen(t, waitForEnd)
	d := newDialer(t, p.options(t, "http", "ssp.test"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Dial(ctx, true, p.addr("ssp.test"))
	e := checkError(t, err, exchange.ConnectFailed, "cancelled")
	testsupport.True(t, errors.Is(e, context.Canceled) && kind(e) == "other", "%v is counted as %s", e, kind(e))
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	_, err = d.Dial(ctx, true, p.addr("ssp.test"))
	e = checkError(t, err, exchange.ConnectFailed, "timeouts.connect and timeouts.tls_handshake")
	testsupport.True(t, kind(e) == "timeout", "%v is counted as %s", e, kind(e))
}
