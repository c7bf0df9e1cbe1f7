package testsupport

import (
	"net"
	"testing"
)

// Listen listens on a free port of the loopback interface until the end of the test.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	NoError(tb, err)
	tb.Cleanup(func() { l.Close() })
	return l
}
