package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// counted returns an SSP at an IP address, and the number of its connections.
func counted(t *testing.T, ip string) (exchange.Address, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	p := listenAt(t, ip, func(*net.TCPConn) { n.Add(1) })
	return exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test"}, AddrPort: netip.AddrPortFrom(netip.MustParseAddr(ip), p.port)}, n
}

// raceTo dials the addresses and closes the connection.
func raceTo(t *testing.T, d *Dialer, addrs ...exchange.Address) Result {
	t.Helper()
	r, err := d.Dial(t.Context(), true, addrs...)
	testsupport.NoError(t, err)
	t.Cleanup(func() { r.Conn.Close() })
	testsupport.Equal(t, r.Socket.RemoteAddr().(*net.TCPAddr).AddrPort(), addrs[r.At].AddrPort, "the connection leads to %v, and At is %v", addrs[r.At])
	return r
}

func raceDialer(t *testing.T, change func(*Options)) *Dialer {
	t.Helper()
	o := (&peer{port: 1}).options(t, "http", "ssp.test")
	if change != nil {
		change(&o)
	}
	return newDialer(t, o)
}

// patientDialer returns a dialer that tries the next address after an hour, or after a failure.
func patientDialer(t *testing.T) *Dialer {
	t.Helper()
	d := raceDialer(t, func(o *Options) { o.ConnectTimeout = 2 * time.Hour })
	d.delay = time.Hour
	return d
}

// While an address does not respond, the dial tries the next one in parallel, and names the first
// one in Lost.
func TestASilentAddressYieldsToTheNext(t *testing.T) {
	hole := tcpBlackHole(t)
	for _, ip := range []string{"127.0.0.1", "::1"} {
		good, n := counted(t, ip)
		r := raceTo(t, raceDialer(t, nil), hole, good)
		testsupport.MustTrue(t, r.At == 1 && len(r.Lost) == 2 && r.Lost[1] == nil, "At is %d, Lost %v", r.At, r.Lost)
		e := checkError(t, r.Lost[0], exchange.ConnectFailed, hole.String(), "250ms", good.String())
		testsupport.Equal(t, kind(e), "timeout", "%[2]v is counted as %[1]s", e)
		testsupport.Eventually(t, "the next address accepts", func() bool { return n.Load() == 1 })
		testsupport.AtLeast(t, r.TCP, connectDelay, "the next address was tried after %v, want %v", connectDelay)
	}
}

// Each address that is silent yields to the one behind it.
func TestSeveralSilentAddressesYieldToTheNext(t *testing.T) {
	hole := tcpBlackHole(t)
	good, _ := counted(t, "127.0.0.1")
	d := raceDialer(t, func(o *Options) { o.ConnectTimeout = testsupport.Patience })
	d.delay = time.Millisecond
	testsupport.Equal(t, raceTo(t, d, hole, hole, hole, good).At, 3, "At is %d")
}

// If timeouts.connect is short, the next address still gets half of it.
func TestAShortTimeoutLeavesTimeForTheNextAddress(t *testing.T) {
	hole := tcpBlackHole(t)
	good, _ := counted(t, "127.0.0.1")
	d := patientDialer(t)
	d.SetTimeouts(2*time.Second, 0)
	checkError(t, raceTo(t, d, hole, good).Lost[0], exchange.ConnectFailed, "within 1s")
}

// A refused attempt starts the next one at once, although the delay has not passed.
func TestARefusedAttemptStartsTheNextAtOnce(t *testing.T) {
	refuses := closedPort(t)
	good, n := counted(t, "::1")
	d := patientDialer(t)
	for range 20 {
		r := raceTo(t, d, refuses, refuses, refuses, good)
		testsupport.MustTrue(t, r.At == 3 && errors.Is(r.Lost[0], syscall.ECONNREFUSED) && errors.Is(r.Lost[2], syscall.ECONNREFUSED), "At is %d, Lost %v", r.At, r.Lost)
	}
	testsupport.Eventually(t, "the good address accepts", func() bool { return n.Load() == 20 })
}

// If the first address is healthy, no other address is dialled: the pool alone decides how load
// spreads.
func TestAHealthyAddressIsDialledAlone(t *testing.T) {
	first, n := counted(t, "127.0.0.1")
	second, others := counted(t, "::1")
	d := patientDialer(t)
	for range 50 {
		r := raceTo(t, d, first, second)
		testsupport.MustTrue(t, r.At == 0 && r.Lost[1] == nil, "At is %d, Lost %v", r.At, r.Lost)
	}
	testsupport.Eventually(t, "all arrive", func() bool { return n.Load() == 50 })
	testsupport.Equal(t, others.Load(), 0, "%d connections to the second address")
}

// Attempts that connect after another one has won are closed.
func TestTheLoserIsClosed(t *testing.T) {
	served := make(chan error, 3)
	p := listen(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		served <- err
	})
	a := p.addr("ssp.test")
	r := &race{dialer: patientDialer(t), addrs: []exchange.Address{a, a, a}, results: make(chan attemptResult), lost: make([]error, 3)}
	r.limited, r.stop = context.WithCancel(t.Context())
	r.start(context.Background())
	r.start(context.Background()) // with the attempt of run, three attempts connect
	won := r.run(context.Background())
	testsupport.NoError(t, won.err)
	testsupport.NoError(t, <-served)
	testsupport.NoError(t, <-served)
	testsupport.True(t, len(served) <= 0, "the winner was closed too")
	won.conn.Close()
	testsupport.NoError(t, <-served)
}

// When all addresses fail, the error is about one of them, and Lost holds all other errors.
func TestAllAddressesFail(t *testing.T) {
	hole, refuses := tcpBlackHole(t), closedPort(t)
	d := raceDialer(t, func(o *Options) { o.ConnectTimeout = 3 * time.Second })
	d.delay = 1 // the second attempt begins at once, long before the first one's timeout
	r, err := d.Dial(t.Context(), true, hole, refuses)
	e := checkError(t, err, exchange.ConnectFailed, hole.String(), "timeouts.connect")
	testsupport.True(t, kind(e) == "timeout" && r.At == 0 && r.Lost[0] == nil && errors.Is(r.Lost[1], syscall.ECONNREFUSED), "%v is counted as %s; At is %d, Lost %v", e, kind(e), r.At, r.Lost)
}

// The end of the context ends all attempts, and counts as a failure of no address.
func TestTheContextEndsARace(t *testing.T) {
	a, b := tcpBlackHole(t), tcpBlackHole(t)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(connectDelay+20*time.Millisecond, cancel)
	r, err := raceDialer(t, nil).Dial(ctx, true, a, b)
	checkError(t, err, exchange.ConnectFailed, "cancelled")
	testsupport.True(t, r.Lost == nil, "Lost is %v", r.Lost)
}

// Each attempt uses a source address of its family.
func TestSourceAddressesHoldForEachAttempt(t *testing.T) {
	hole := tcpBlackHole(t)
	good, _ := counted(t, "::1")
	d := raceDialer(t, func(o *Options) {
		o.Sources = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("::1")}
	})
	raceTo(t, d, hole, good)
	d = raceDialer(t, func(o *Options) { o.Sources = []netip.Addr{netip.MustParseAddr("::1")} })
	r := raceTo(t, d, hole, good)
	testsupport.True(t, strings.Contains(r.Lost[0].Error(), "source_addresses"), "the attempt without a source address failed with %v", r.Lost[0])
	d = raceDialer(t, func(o *Options) { o.Sources = []netip.Addr{netip.MustParseAddr("127.0.0.2")} })
	good4, _ := counted(t, "127.0.0.1")
	r = raceTo(t, d, hole, good4)
	testsupport.Equal(t, r.Socket.LocalAddr().(*net.TCPAddr).IP.String(), "127.0.0.2", "the connection comes from %s")
}

// The handshake and its error belong to the address that won.
func TestTheHandshakeFollowsTheWinner(t *testing.T) {
	hole := tcpBlackHole(t)
	ca := newAuthority()
	p := listenTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.valid(t, "ssp.test")}})
	d := newDialer(t, p.https(t, ca, "ssp.test"))
	r := raceTo(t, d, hole, p.addr("ssp.test"))
	testsupport.True(t, r.At == 1 && r.TLS > 0, "At is %d, the handshake took %v", r.At, r.TLS)
	strange := newDialer(t, p.https(t, newAuthority(), "ssp.test"))
	r, err := strange.Dial(t.Context(), true, hole, p.addr("ssp.test"))
	checkError(t, err, exchange.TLSFailed, p.addr("ssp.test").String(), "trusted authority")
	testsupport.True(t, r.At == 1 && r.Lost[0] != nil, "At is %d, Lost %v", r.At, r.Lost)
}

// At timeouts.connect, the dial begins no further attempt: an address that was not tried has not failed.
func TestAnAddressThatWasNotTriedHasNotFailed(t *testing.T) {
	hole := tcpBlackHole(t)
	good, n := counted(t, "127.0.0.1")
	d := raceDialer(t, func(o *Options) { o.ConnectTimeout = 100 * time.Millisecond })
	r, err := d.Dial(t.Context(), true, hole, hole, hole, hole, good)
	checkError(t, err, exchange.ConnectFailed, "timeouts.connect")
	testsupport.True(t, r.Lost[4] == nil && n.Load() == 0, "the last address was not tried, and its error is %v", r.Lost[4])
}
