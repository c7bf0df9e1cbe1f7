package socket

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// notified counts the calls of Notify.
type notified struct{ all, hangUps atomic.Int32 }

func (o *notified) Notify(hungUp bool) {
	o.all.Add(1)
	if hungUp {
		o.hangUps.Add(1)
	}
}

// await waits until n is at least least.
func await(t *testing.T, what string, n *atomic.Int32, least int32) {
	t.Helper()
	testsupport.Eventually(t, "Notify is called for "+what, func() bool { return n.Load() >= least })
}

func newWatch(t *testing.T) *Watch {
	t.Helper()
	w, err := NewWatch()
	testsupport.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

func TestWatchReportsEachPeerThatClosesAndNoOther(t *testing.T) {
	w := newWatch(t)
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			const n = 20
			var owners [n]notified
			var peers [n]net.Conn
			for i := range n {
				c, peer := connect(t, network)
				peers[i] = peer
				w.Add(c, &owners[i])
				defer w.Remove(c, &owners[i])
				peer.Write([]byte("bytes that are not read"))
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
				if i%4 < 2 {
					await(t, "a peer that closes", &owners[i].hangUps, 1)
				} else if owners[i].all.Load() > 0 {
					t.Errorf("connection %d: Notify was called, but its peer is open", i)
				}
			}
		})
	}
}

// A new connection that gets the descriptor of an earlier one receives only the events of its own
// peer.
func TestWatchKeepsConnectionsWithTheSameDescriptorApart(t *testing.T) {
	w := newWatch(t)
	for i := range 100 {
		old, peer := connect(t, "tcp")
		var before, owner notified
		w.Add(old, &before)
		if i%2 == 0 {
			w.AwaitArrival(old, &before)
		}
		peer.Close()
		if i%4 < 2 {
			w.Remove(old, &before)
		}
		old.Close()
		c, stays := connect(t, "tcp")
		w.Add(c, &owner)
		if i%4 >= 2 {
			w.Remove(old, &before) // too late: the descriptor belongs to another connection
		}
		time.Sleep(100 * time.Microsecond)
		testsupport.MustTrue(t, owner.all.Load() <= 0, "Notify was called for the peer of an earlier connection")
		stays.Close()
		await(t, "the peer that has the descriptor", &owner.hangUps, 1)
		w.Remove(c, &owner)
		c.Close()
	}
}

// Notify is called once for an arrival, whether the bytes arrive before or after AwaitArrival. It
// is called on the owner that awaits them. After AwaitHangUp, hang-ups are reported again.
func TestWatchReportsAnArrivalOnce(t *testing.T) {
	w := newWatch(t)
	for _, network := range networks {
		for _, early := range []bool{false, true} {
			c, peer := connect(t, network)
			var serving, parked notified
			w.Add(c, &serving)
			if early {
				peer.Write([]byte("a"))
			}
			testsupport.MustTrue(t, w.AwaitArrival(c, &parked), "AwaitArrival returned false")
			if !early {
				testsupport.True(t, parked.all.Load() <= 0, "Notify was called before the arrival")
				peer.Write([]byte("a"))
			}
			await(t, "an arrival", &parked.all, 1)
			peer.Write([]byte("b"))
			var got [2]byte
			_, err := io.ReadFull(c, got[:])
			testsupport.NoError(t, err)
			w.AwaitHangUp(c, &serving)
			peer.Write([]byte("c"))
			peer.Close()
			await(t, "a hang-up", &serving.hangUps, 1)
			n, s := parked.all.Load(), serving.all.Load()-serving.hangUps.Load()
			testsupport.True(t, n == 1 && s == 0, "%s, early %v: Notify was called %d times for one arrival, and %d times for the owner that awaits none", network, early, n, s)
			w.Remove(c, &serving)
		}
	}
}

// A closed or closing peer counts as an arrival. AwaitArrival returns false for a connection that
// is closed or was not added.
func TestWatchReportsAPeerThatClosesAsAnArrival(t *testing.T) {
	w := newWatch(t)
	for _, early := range []bool{false, true} {
		c, peer := connect(t, "tcp")
		var o notified
		testsupport.True(t, !w.AwaitArrival(c, &o), "AwaitArrival returned true for a connection that was not added")
		w.Add(c, &o)
		if early {
			peer.Close()
		}
		testsupport.True(t, w.AwaitArrival(c, &o), "AwaitArrival returned false")
		peer.Close()
		await(t, "the end of the stream", &o.hangUps, 1)
		c.Close()
		testsupport.True(t, !w.AwaitArrival(c, &o), "AwaitArrival returned true for a closed connection")
		w.Remove(c, &o)
	}
}
