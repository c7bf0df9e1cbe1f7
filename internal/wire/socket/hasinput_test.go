package socket

import (
	"net"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestHasInputSeesBytesBesideAnAwait(t *testing.T) {
	onBoth(t, func(t *testing.T, c *Conn, peer net.Conn) {
		awaited := make(chan error)
		go func() { awaited <- c.Await() }()
		testsupport.True(t, !c.HasInput(), "HasInput is true, but no byte was sent")
		peer.Write([]byte("a"))
		testsupport.Eventually(t, "HasInput sees the byte", c.HasInput)
		testsupport.NoError(t, <-awaited)
		c.Close()
		testsupport.True(t, c.HasInput(), "a read of a closed socket would wait")
	})
}
