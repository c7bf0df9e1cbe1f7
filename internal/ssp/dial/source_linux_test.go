package dial

import (
	"context"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"

	"golang.org/x/sys/unix"
)

// Connections come from the source addresses in turn, and take no port before they connect.
func TestConnectionsComeFromSourceAddresses(t *testing.T) {
	testsupport.MustEqual(t, runtime.GOOS, "linux", "only on Linux does 127.0.0.0/8 belong to one machine: %v")
	from := make(chan string, 10)
	p := listen(t, func(c *net.TCPConn) {
		from <- c.RemoteAddr().(*net.TCPAddr).IP.String()
		_, _ = io.Copy(io.Discard, c)
	})
	o := p.options(t, "http", "ssp.test")
	o.Sources = []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("::1")}
	d := newDialer(t, o)
	var seen []string
	for range 4 {
		r := p.dial(t, d, true)
		seen = append(seen, <-from)
		raw, err := r.Socket.Conn.(*net.TCPConn).SyscallConn()
		testsupport.NoError(t, err)
		testsupport.NoError(t, raw.Control(func(fd uintptr) {
			n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT)
			testsupport.True(t, err == nil && n == 1, "IP_BIND_ADDRESS_NO_PORT is %d (%v), want 1", n, err)
		}))
	}
	want := []string{"127.0.0.2", "127.0.0.3", "127.0.0.2", "127.0.0.3"}
	testsupport.True(t, slices.Equal(seen, want), "the peer saw %v, want %v", seen, want)
}

// Dials leave out an address that no source address can reach.
func TestSourceAddressesChooseTheFamily(t *testing.T) {
	p := listen(t, waitForEnd)
	o := p.options(t, "http", "ssp.test")
	o.Lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}, nil
	}
	o.Sources = []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	d := newDialer(t, o)
	addrs, err := d.Addresses(context.Background())
	testsupport.NoError(t, err)
	testsupport.True(t, len(addrs) == 1 && addrs[0].AddrPort.Addr().Is4(), "addresses %v, want the IPv4 one", addrs)
	_, err = d.Dial(context.Background(), true, exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test"}, AddrPort: netip.MustParseAddrPort("[::1]:80")})
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "source_addresses"), "a dial to IPv6: %v", err)
}

// A source address that the machine does not have fails the dial, and the error names the setting.
func TestForeignSourceAddressIsNamed(t *testing.T) {
	p := listen(t, waitForEnd)
	o := p.options(t, "http", "ssp.test")
	o.Sources = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	d := newDialer(t, o)
	_, err := d.Dial(context.Background(), true, exchange.Address{Endpoint: exchange.Endpoint{Host: "ssp.test"}, AddrPort: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.port)})
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "source_addresses") && strings.Contains(err.Error(), "192.0.2.1"), "the error is %v", err)
}
