package testsupport

import (
	"net"
	"path/filepath"
	"testing"
)

// ConnPair returns both ends of a connection over loopback, or over a unix socket. The end of the test closes
// them.
func ConnPair(tb testing.TB, network string) (dialled, accepted net.Conn) {
	tb.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(tb.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	NoError(tb, err)
	defer l.Close()
	dialled, err = net.Dial(network, l.Addr().String())
	NoError(tb, err)
	tb.Cleanup(func() { dialled.Close() })
	accepted, err = l.Accept()
	NoError(tb, err)
	tb.Cleanup(func() { accepted.Close() })
	return dialled, accepted
}

// Listen listens on a free port of the loopback interface until the end of the test.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NoError(tb, err)
	tb.Cleanup(func() { l.Close() })
	return l
}
