package socket

import (
	"testing"
	"time"
)

func TestHasInputSeesBytesBesideAnAwait(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c, peer := connect(t, network)
			awaited := make(chan error)
			go func() { awaited <- c.Await(time.Time{}) }()
			if c.HasInput() {
				t.Error("HasInput is true, but no byte was sent")
			}
			peer.Write([]byte("a"))
			for limit := time.Now().Add(patience); !c.HasInput(); time.Sleep(100 * time.Microsecond) {
				if time.Now().After(limit) {
					t.Fatal("HasInput is false, but a byte was sent")
				}
			}
			if err := <-awaited; err != nil {
				t.Error(err)
			}
			c.Close()
			if !c.HasInput() {
				t.Error("a read of a closed socket would wait")
			}
		})
	}
}
