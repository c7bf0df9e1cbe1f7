package listen

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"github.com/pires/go-proxyproto"
)

const v2 = "\r\n\r\n\x00\r\nQUIT\n"

// proxiedPair returns a connection from Accept, and its peer, which must send a PROXY header.
func proxiedPair(t *testing.T, network string, timeout time.Duration) (*Proxied, net.Conn, *Listener) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = t.TempDir() + "/s"
	}
	s := openAt(t, trafficAt(network, address))
	s.Traffic.Trust([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, timeout)
	peer := dial(t, s.Traffic.Addr())
	c, err := s.Traffic.Accept()
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(*Proxied), peer, s.Traffic
}

func TestAHeaderNamesTheClient(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	for _, row := range []struct {
		name, header string
		client       netip.Addr
	}{
		{"v1 IPv4", "PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n", netip.MustParseAddr("203.0.113.7")},
		{"v1 IPv6", "PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n", netip.MustParseAddr("2001:db8::7")},
		{"v1 IPv4 within IPv6", "PROXY TCP6 ::ffff:203.0.113.7 ::ffff:192.0.2.1 56324 443\r\n", netip.MustParseAddr("203.0.113.7")},
		{"v1, longest", "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n", local},
		{"v1 UNKNOWN", "PROXY UNKNOWN\r\n", local},
		{"v2 IPv4", v2 + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbb", netip.MustParseAddr("203.0.113.7")},
		{"v2 IPv6", v2 + "\x21\x21\x00\x24" + "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x07" + "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" + "\xdc\x04\x01\xbb", netip.MustParseAddr("2001:db8::7")},
		{"v2 with TLVs", v2 + "\x21\x11\x00\x14\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbb\x04\x00\x05hello", netip.MustParseAddr("203.0.113.7")},
		{"v2 LOCAL", v2 + "\x20\x00\x00\x00", local},
		{"v2 LOCAL with an address", v2 + "\x20\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbb", local},
		{"v2 UNSPEC", v2 + "\x21\x00\x00\x00", local},
		{"v2 UNSPEC with TLVs", v2 + "\x21\x00\x00\x08\x04\x00\x05hello", local},
		{"v2 UNSPEC with bytes that are no TLVs", v2 + "\x21\x00\x00\x03\xff\xff\xff", local},
		{"v2 of a unix socket", v2 + "\x21\x31\x00\xd8" + strings.Repeat("\x00", 216), local},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, peer, l := proxiedPair(t, "tcp", patience)
			_, err := peer.Write([]byte(row.header + "GET / HTTP/1.1\r\n"))
			must(t, err)
			client, err := c.ReadHeader()
			must(t, err)
			testsupport.Equal(t, client, row.client, "the client is %v")
			next := make([]byte, 16)
			_, err = io.ReadFull(c.NetConn(), next)
			must(t, err)
			testsupport.True(t, string(next) == "GET / HTTP/1.1\r\n", "the bytes after the header are %q", next)
			testsupport.Equal(t, counted(&l.headers), [3]uint64{}, "%v headers were refused")
		})
	}
}

func TestAUnixPeerWithoutAnAddressHasNone(t *testing.T) {
	c, peer, _ := proxiedPair(t, "unix", patience)
	_, err := peer.Write([]byte("PROXY UNKNOWN\r\n"))
	must(t, err)
	client, err := c.ReadHeader()
	testsupport.True(t, err == nil && !client.IsValid(), "%v, %v", client, err)
}

func TestAnInvalidHeaderIsRefusedAndCounted(t *testing.T) {
	for _, row := range []struct {
		name, sent string
		counter    func(*proxyErrors) uint64
	}{
		{"a request", "GET / HTTP/1.1\r\n\r\n", missing}, {"POST", "POST / HTTP/1.1\r\n\r\n", missing},
		{"a ClientHello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh", missing}, {"empty lines", "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n", missing},
		{"a short request", "GET /", missing},
		{"half a header", "PROXY TCP4 203.0.113.7", malformed}, {"half a signature", v2[:9], malformed}, {"half v2", v2 + "\x21\x11\x00\x0c\xcb", malformed},
		{"lower case", "proxy TCP4 203.0.113.7 192.0.2.1 56324 443\r\n", missing},
		{"bare LF", "PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\n", malformed}, {"bare LF at once", "PROXY TCP4\nGET / HTTP/1.1\r\n\r\n", malformed},
		{"no line end", "PROXY TCP4 " + strings.Repeat("1", 200), malformed},
		{"bad address", "PROXY TCP4 203.0.113.256 192.0.2.1 56324 443\r\n", malformed}, {"a name", "PROXY TCP4 evil.example 192.0.2.1 56324 443\r\n", malformed},
		{"wrong family", "PROXY TCP4 2001:db8::7 2001:db8::1 56324 443\r\n", malformed}, {"bad port", "PROXY TCP4 203.0.113.7 192.0.2.1 65536 443\r\n", malformed},
		{"UDP", "PROXY UDP4 203.0.113.7 192.0.2.1 56324 443\r\n", malformed}, {"two blanks", "PROXY  TCP4 203.0.113.7 192.0.2.1 56324 443\r\n", malformed},
		{"v2 version 1", v2 + "\x11\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbb", malformed},
		{"v2 command 2", v2 + "\x22\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbb", malformed},
		{"half v2 UNSPEC", v2 + "\x21\x00\x00\x08\x04", malformed}, {"v2 UNSPEC over UDP", v2 + "\x21\x02\x00\x00", malformed},
		{"v2 too short", v2 + "\x21\x11\x00\x04\xcb\x00\x71\x07", malformed}, {"v2 too long", v2 + "\x21\x11\xff\xff" + strings.Repeat("x", 70_000), malformed},
	} {
		t.Run(row.name, func(t *testing.T) {
			c, peer, l := proxiedPair(t, "tcp", patience)
			_, err := peer.Write([]byte(row.sent))
			must(t, err)
			must(t, peer.(*net.TCPConn).CloseWrite())
			client, err := c.ReadHeader()
			testsupport.True(t, err != nil, "read %v", client)
			n, err := c.NetConn().Read(make([]byte, 1))
			testsupport.True(t, errors.Is(err, net.ErrClosed), "the connection is still open: %d, %v", n, err)
			testsupport.True(t, row.counter(&l.headers) == 1, "counted as %+v", counted(&l.headers))
		})
	}
}

func missing(c *proxyErrors) uint64   { return c.missing.Load() }
func malformed(c *proxyErrors) uint64 { return c.malformed.Load() }

func counted(c *proxyErrors) [3]uint64 {
	return [3]uint64{c.missing.Load(), c.malformed.Load(), c.timeout.Load()}
}

// A client that closes at once only checked whether the port is open. A reset, and a drain that closes
// the connection, say nothing about the header either.
func TestAConnectionThatEndsWithoutAHeader(t *testing.T) {
	for _, tt := range []struct {
		name     string
		timeout  time.Duration
		end      func(c *Proxied, peer *net.TCPConn)
		want     error
		timeouts uint64
	}{
		{"the timeout", 10 * time.Millisecond, func(_ *Proxied, peer *net.TCPConn) {
			_, err := peer.Write([]byte("PROXY TCP4 203.0.113.7 "))
			must(t, err)
		}, os.ErrDeadlineExceeded, 1},
		{"closed", patience, func(_ *Proxied, peer *net.TCPConn) { must(t, peer.Close()) }, io.EOF, 0},
		{"reset", patience, func(_ *Proxied, peer *net.TCPConn) { must(t, peer.SetLinger(0)); must(t, peer.Close()) }, syscall.ECONNRESET, 0},
		{"a drain", patience, func(c *Proxied, _ *net.TCPConn) { must(t, c.NetConn().Close()) }, net.ErrClosed, 0},
	} {
		c, peer, l := proxiedPair(t, "tcp", tt.timeout)
		tt.end(c, peer.(*net.TCPConn))
		_, err := c.ReadHeader()
		testsupport.True(t, errors.Is(err, tt.want) && counted(&l.headers) == [3]uint64{2: tt.timeouts}, "%s: got %v, counted as %v", tt.name, err, counted(&l.headers))
		testsupport.True(t, tt.timeouts <= 0 || strings.Contains(err.Error(), "server.read_timeout"), "%v does not name the setting", err)
	}
}

// For any bytes in any pieces, exactly the header is read. The library, which may read ahead, must
// agree.
func FuzzReadHeader(f *testing.F) {
	for _, seed := range []string{
		"PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\nGET", "PROXY UNKNOWN\r\nGET", "PROXY UNKNOWN \r\n", "PROXY\r\n", "PROXY \r\nPROXY TCP4\r\n",
		v2 + "\x21\x11\x00\x0c\xcb\x00\x71\x07\xc0\x00\x02\x01\xdc\x04\x01\xbbGET", v2 + "\x20\x00\x00\x00GET", v2 + "\x20\x00\x10\x01", v2, "GET / HTTP/1.1\r\n\r\n", "",
	} {
		f.Add([]byte(seed), uint8(1))
		f.Add([]byte(seed), uint8(255))
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8) {
		r := &pieces{b: sent, most: max(int(piece), 1)}
		h, err := readHeader(r)
		want, wantErr := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(sent), 1<<17))
		if err != nil {
			testsupport.MustTrue(t, wantErr != nil, "%q is refused with %v, and is %+v", sent, err, want)
			return
		}
		testsupport.MustTrue(t, wantErr == nil && h.EqualsTo(want), "%q is %+v, want %+v, %v", sent, h, want, wantErr)
		taken := sent[:len(sent)-len(r.b)]
		if h.Version == 1 && !bytes.HasSuffix(taken, []byte("\r\n")) || h.Version == 2 && len(taken) != 16+int(taken[14])<<8+int(taken[15]) {
			t.Fatalf("of %q %q was read", sent, taken)
		}
	})
}

// pieces returns at most so many bytes at once.
type pieces struct {
	b    []byte
	most int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.most)], p.b)
	p.b = p.b[n:]
	return n, nil
}
