package socket

import (
	"testing"
	"time"
)

func TestHasComeSeesBytesBesideAnAwait(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c, peer := connect(t, network)
			awaited := make(chan error)
			go func() { awaited <- c.Await(time.Time{}) }()
			if c.HasCome() {
				t.Error("something has come, and nothing was sent")
			}
			peer.Write([]byte("a"))
			for limit := time.Now().Add(patience); !c.HasCome(); time.Sleep(100 * time.Microsecond) {
				if time.Now().After(limit) {
					t.Fatal("nothing has come")
				}
			}
			if err := <-awaited; err != nil {
				t.Error(err)
			}
			c.Close()
			if !c.HasCome() {
				t.Error("a read of a closed socket would wait")
			}
		})
	}
}
