package socket

import (
	"net"
	"testing"
	"time"
)

func awaitHungUp(t *testing.T, c *Conn) {
	t.Helper()
	for limit := time.Now().Add(patience); !c.HungUp(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(limit) {
			t.Fatal("the peer's hang-up was not seen")
		}
	}
}

func TestHungUpSeesAnEndBehindBytesThatWereNotRead(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c, peer := connect(t, network)
			if c.HungUp() {
				t.Fatal("a new connection is hung up")
			}
			peer.Write([]byte("ab"))
			awaitState(t, c, Readable)
			if c.HungUp() {
				t.Fatal("HungUp is true after bytes without an end")
			}
			peer.(interface{ CloseWrite() error }).CloseWrite()
			awaitHungUp(t, c)
			if s := c.Peek(); s != Readable {
				t.Fatalf("Peek %d: the bytes are gone", s)
			}
			c.Close()
			if !c.HungUp() {
				t.Fatal("the socket is closed, and not hung up")
			}
		})
	}
}

func TestHungUpFindsAReset(t *testing.T) {
	c, peer := connect(t, "tcp")
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	awaitHungUp(t, c)
}
