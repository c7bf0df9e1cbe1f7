package socket

import (
	"net"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func awaitHungUp(t *testing.T, c *Conn) {
	t.Helper()
	testsupport.Eventually(t, "the peer's hang-up is seen", c.HungUp)
}

func TestHungUpSeesAnEndBehindBytesThatWereNotRead(t *testing.T) {
	onBoth(t, func(t *testing.T, c *Conn, peer net.Conn) {
		testsupport.MustTrue(t, !c.HungUp(), "a new connection is hung up")
		peer.Write([]byte("ab"))
		awaitState(t, c, Readable)
		testsupport.MustTrue(t, !c.HungUp(), "HungUp is true after bytes without an end")
		peer.(interface{ CloseWrite() error }).CloseWrite()
		awaitHungUp(t, c)
		testsupport.MustEqual(t, c.Peek(), Readable, "Peek %d: the bytes are gone")
		c.Close()
		testsupport.MustTrue(t, c.HungUp(), "the socket is closed, and not hung up")
	})
}

func TestHungUpFindsAReset(t *testing.T) {
	c, peer := connect(t, "tcp")
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	awaitHungUp(t, c)
}
