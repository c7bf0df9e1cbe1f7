package socket

import (
	"testing"

	"adbuffer/internal/testsupport"
)

func TestHasInputSeesBytesBesideAnAwait(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c, peer := connect(t, network)
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
}
