package listen

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// patience bounds every wait; it passes only when something is broken.
const patience = testsupport.Patience

func must(t testing.TB, err error) {
	t.Helper()
	testsupport.NoError(t, err)
}

func trafficAt(network, address string) Options {
	return Options{Name: "traffic", Key: "server.listen", Network: network, Address: address, Mode: 0o660}
}

func adminAt(address string) Options {
	return Options{Name: "admin", Key: "admin.listen", Network: "tcp", Address: address}
}

// openAt opens both listeners until the end of the test, the admin listener at any free port.
func openAt(t *testing.T, traffic Options) *Sockets {
	t.Helper()
	s, err := Open(traffic, adminAt("127.0.0.1:0"), zap.NewNop())
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// reserve returns an address whose port is reserved until the end of the test. Only sockets with
// SO_REUSEPORT can bind it.
func reserve(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(fd)
	must(t, err)
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*unix.SockaddrInet4).Port}).String()
}

// dial connects until the end of the test.
func dial(t *testing.T, at net.Addr) net.Conn {
	t.Helper()
	c, err := net.DialTimeout(at.Network(), at.String(), patience)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// awaitQueued waits until the kernel has a connection for Accept.
func awaitQueued(t *testing.T, l *Listener) {
	t.Helper()
	raw, err := l.socket.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		for end := time.Now().Add(patience); ; {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
			if n == 1 {
				return
			}
			testsupport.MustTrue(t, errors.Is(err, unix.EINTR) && !time.Now().After(end), "no connection is queued: %v", err)
		}
	}))
}

// wantAccepted accepts n connections.
func wantAccepted(t *testing.T, l *Listener, n int) {
	t.Helper()
	for range n {
		c, err := l.Accept()
		must(t, err)
		must(t, c.Close())
	}
}

func wantClosed(t *testing.T, l *Listener) {
	t.Helper()
	c, err := l.Accept()
	testsupport.True(t, errors.Is(err, net.ErrClosed), "a closed listener accepts %v, %v", c, err)
}

// authority issues certificates into files of a folder.
type authority struct {
	*sspsim.CA
	t *testing.T
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	ca, err := sspsim.NewCA()
	must(t, err)
	return &authority{ca, t}
}

// write writes a new server certificate, its key and the authority into dir.
func (a *authority) write(dir string) Files {
	a.t.Helper()
	f := Files{Name: "server", TLSFiles: configfile.TLSFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}}
	cert, err := a.ServerCert("localhost", "127.0.0.1")
	must(a.t, err)
	must(a.t, sspsim.WriteKeyPair(cert, f.Cert, f.Key))
	must(a.t, a.WriteFile(filepath.Join(dir, "ca.pem")))
	return f
}

// asksClients makes the listener ask clients for certificates of the authority.
func asksClients(auth tls.ClientAuthType) func(*Files) {
	return func(f *Files) { f.CA, f.ClientAuth = filepath.Join(filepath.Dir(f.Cert), "ca.pem"), auth }
}

func replace(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(name+".new", []byte(text), 0o600))
	must(t, os.Rename(name+".new", name))
}
