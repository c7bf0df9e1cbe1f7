package socket

import (
	"net"
	"sync/atomic"
	"testing"
	"time"
)

func TestHangUpsTellsOfEachPeerThatClosesAndOfNoOther(t *testing.T) {
	h, err := NewHangUps()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			const n = 20
			var told [n]atomic.Int32
			var peers [n]net.Conn
			for i := range n {
				c, peer := connect(t, network)
				peers[i] = peer
				h.Add(c, func() { told[i].Add(1) })
				defer h.Remove(c)
				peer.Write([]byte("bytes that the test does not read"))
			}
			for i, peer := range peers {
				switch i % 4 {
				case 0:
					peer.Close()
				case 1:
					peer.(interface{ CloseWrite() error }).CloseWrite()
				}
			}
			for i := range n {
				closed := i%4 < 2
				for limit := time.Now().Add(patience); closed && told[i].Load() == 0; time.Sleep(time.Millisecond) {
					if time.Now().After(limit) {
						t.Fatalf("connection %d: not told", i)
					}
				}
				if !closed && told[i].Load() > 0 {
					t.Errorf("connection %d: told, though its peer is there", i)
				}
			}
		})
	}
}

// A connection that gets the descriptor of an earlier one is told of its own peer alone.
func TestHangUpsKeepsConnectionsWithTheSameDescriptorApart(t *testing.T) {
	h, err := NewHangUps()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for range 200 {
		old, peer := connect(t, "tcp")
		h.Add(old, func() {})
		peer.Close()
		h.Remove(old)
		old.Close()
		c, stays := connect(t, "tcp")
		var told atomic.Bool
		h.Add(c, func() { told.Store(true) })
		time.Sleep(100 * time.Microsecond)
		if told.Load() {
			t.Fatal("told of a peer of an earlier connection")
		}
		h.Remove(c)
		c.Close()
		stays.Close()
	}
}
