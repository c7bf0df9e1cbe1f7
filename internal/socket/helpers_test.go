package socket

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"adbuffer/internal/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// patience bounds every wait of these tests. It is far longer than any of them takes.
const patience = testsupport.Patience

// networks are the networks of a Conn.
var networks = []string{"tcp", "unix"}

// connect returns both ends of a connection; the first is wrapped.
func connect(tb testing.TB, network string) (*Conn, net.Conn) {
	tb.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(tb.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	testsupport.NoError(tb, err)
	defer ln.Close()
	ours, err := net.Dial(network, ln.Addr().String())
	testsupport.NoError(tb, err)
	peer, err := ln.Accept()
	testsupport.NoError(tb, err)
	tb.Cleanup(func() {
		ours.Close()
		peer.Close()
	})
	return New(ours), peer
}

// awaitState peeks until c is in state.
func awaitState(tb testing.TB, c *Conn, state State) {
	tb.Helper()
	testsupport.Eventually(tb, fmt.Sprint("Peek returns ", state), func() bool { return c.Peek() == state })
}
