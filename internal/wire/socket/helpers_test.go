package socket

import (
	"fmt"
	"io"
	"net"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { testsupport.Main(m) }

// patience bounds every wait of these tests. It is far longer than any of them takes.
const patience = testsupport.Patience

// networks are the networks of a Conn.
var networks = []string{"tcp", "unix"}

// connect returns both ends of a connection; the first is wrapped.
func connect(tb testing.TB, network string) (*Conn, net.Conn) {
	tb.Helper()
	ours, peer := testsupport.ConnPair(tb, network)
	return New(ours), peer
}

// onBoth runs test on a connection of each network.
func onBoth(t *testing.T, test func(t *testing.T, c *Conn, peer net.Conn)) {
	t.Helper()
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c, peer := connect(t, network)
			test(t, c, peer)
		})
	}
}

// awaitState peeks until c is in state.
func awaitState(tb testing.TB, c *Conn, state State) {
	tb.Helper()
	testsupport.Eventually(tb, fmt.Sprint("Peek returns ", state), func() bool { return c.Peek() == state })
}

// wantRead checks that one Read returns this text.
func wantRead(t *testing.T, r io.Reader, text string) {
	t.Helper()
	b := make([]byte, 100)
	n, err := r.Read(b)
	testsupport.MustTrue(t, string(b[:n]) == text && err == nil, "read %q, %v; want %q", b[:n], err, text)
}

func readError(r io.Reader) error {
	_, err := r.Read(make([]byte, 1))
	return err
}

func writeError(w io.Writer) error {
	_, err := w.Write([]byte("x"))
	return err
}
