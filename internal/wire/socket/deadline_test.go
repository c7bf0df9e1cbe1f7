package socket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"adbuffer/internal/test/testsupport"
)

// moved is a deadline set at one moment; both count from the start.
type moved struct{ at, to time.Duration }

// firesAt is the model: it returns when a Read that begins at 0 and gets no bytes fails, if
// deadlines are set according to moves. ok is false if it never fails.
func firesAt(moves []moved) (at time.Duration, ok bool) {
	for i, m := range moves {
		until := time.Duration(1<<63 - 1)
		if i+1 < len(moves) {
			until = moves[i+1].at
		}
		if fires := max(m.to, m.at); m.to != 0 && fires < until {
			return fires, true
		}
	}
	return 0, false
}

// However a deadline is moved while a Read waits, the Read fails exactly when the deadline passes.
// The socket is a pipe in a synctest bubble, so that moments are exact.
func TestReadFailsExactlyAtItsDeadlineHoweverThatIsMoved(t *testing.T) {
	testsupport.Long(t)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var moves []moved
		at := time.Duration(0)
		for range 1 + r.IntN(8) {
			// Deadlines have odd moments and moves have even ones, because the order of two events
			// at the same moment is undefined.
			m := moved{at: at, to: at + time.Duration(2*r.IntN(200)-61)}
			if r.IntN(4) == 0 || m.to <= 0 {
				m.to = 0 // no deadline
			}
			moves = append(moves, m)
			at += time.Duration(2 * (1 + r.IntN(60)))
		}
		moves = append(moves, moved{at: at, to: at + 301})
		want, _ := firesAt(moves)

		testsupport.Bubble(t, func(t *testing.T) {
			ours, peer := net.Pipe()
			defer ours.Close()
			defer peer.Close()
			c := New(ours)
			start := time.Now()
			go func() {
				for _, m := range moves {
					time.Sleep(time.Until(start.Add(m.at)))
					var d time.Time
					if m.to != 0 {
						d = start.Add(m.to)
					}
					c.SetReadDeadline(d)
				}
			}()
			synctest.Wait() // the first deadline is set
			_, err := c.Read(make([]byte, 1))
			got := time.Since(start)
			testsupport.MustTrue(t, errors.Is(err, os.ErrDeadlineExceeded) && got == want, "seed %d: error %v after %v, want a timeout after %v; moves %v", seed, err, got, want, moves)
			synctest.Wait()
			time.Sleep(time.Hour)
		})
	}
}

func TestPassedDeadlineStaysPassedUntilItIsMoved(t *testing.T) {
	onBoth(t, func(t *testing.T, c *Conn, peer net.Conn) {
		c.SetDeadline(time.Now().Add(-time.Second))
		for range 3 {
			testsupport.ErrorIs(t, readError(c), os.ErrDeadlineExceeded, "Read: %v")
			testsupport.ErrorIs(t, writeError(c), os.ErrDeadlineExceeded, "Write: %v")
		}
		c.SetDeadline(time.Now().Add(patience))
		testsupport.NoError(t, writeError(c))
		peer.Write([]byte("y"))
		testsupport.NoError(t, readError(c))
		c.SetDeadline(time.Now().Add(-time.Second))
		c.SetDeadline(time.Time{})
		peer.Write([]byte("z"))
		testsupport.NoError(t, readError(c))
	})
}

// A runtime timer that fires too early must lose no byte and send none twice.
func TestWriteContinuesAfterATimerThatFiredTooEarly(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		ours, peer := net.Pipe()
		defer ours.Close()
		defer peer.Close()
		c := New(ours)
		c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // the timer is armed for this deadline
		c.SetWriteDeadline(time.Now().Add(time.Hour))             // this deadline is only stored
		want := bytes.Repeat([]byte("0123456789"), 100)
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(want)
			done <- err
		}()
		got := make([]byte, len(want))
		io.ReadFull(peer, got[:333])
		time.Sleep(time.Minute) // the timer fires during the Write
		_, err := io.ReadFull(peer, got[333:])
		testsupport.MustTrue(t, err == nil && bytes.Equal(got, want), "the peer read other bytes, or %v", err)
		testsupport.NoError(t, <-done)
	})
}

func TestWriteFailsAtItsDeadlineAndSaysHowMuchLeft(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		ours, peer := net.Pipe()
		defer ours.Close()
		defer peer.Close()
		c := New(ours)
		start := time.Now()
		c.SetWriteDeadline(start.Add(time.Second))
		c.SetWriteDeadline(start.Add(time.Minute))
		go io.ReadFull(peer, make([]byte, 3))
		n, err := c.Write([]byte("12345"))
		if n != 3 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Minute {
			t.Fatalf("%d bytes, %v after %v; want 3 bytes, a timeout after a minute", n, err, time.Since(start))
		}
	})
}

// While a goroutine sets the timer, another one moves the deadline to an earlier moment.
func TestADeadlineThatIsMovedWhileTheTimerIsSetCounts(t *testing.T) {
	var d deadline
	first, earlier := time.Now().Add(time.Hour), time.Now().Add(time.Minute)
	var armed []time.Time
	testsupport.NoError(t, d.set(first, func(at time.Time) error {
		if armed = append(armed, at); len(armed) == 1 {
			d.requested.Store(toInt(earlier)) // the other goroutine waits for the lock then
		}
		return nil
	}))
	testsupport.True(t, len(armed) == 2 && armed[1].Equal(earlier), "the timer was set to %v, want %v in the end", armed, earlier)
}

// Several goroutines move deadlines while one reads. The race detector watches. The deadline that
// is set last must count.
func TestTheDeadlineThatIsSetLastCounts(t *testing.T) {
	onBoth(t, func(t *testing.T, c *Conn, peer net.Conn) {
		for round := range 10 {
			var setters, reader sync.WaitGroup
			for range 2 {
				setters.Go(func() {
					for i := range 300 {
						c.SetReadDeadline(time.Now().Add(time.Duration(i%40-20) * 10 * time.Microsecond))
						runtime.Gosched()
					}
				})
			}
			reader.Go(func() {
				for range 100 {
					c.Read(make([]byte, 1)) // times out
				}
			})
			setters.Wait()
			c.SetReadDeadline(time.Now()) // for a Read that waits without a deadline
			reader.Wait()

			if round%2 == 0 {
				c.SetReadDeadline(time.Now().Add(patience))
				peer.Write([]byte("x"))
				n, err := c.Read(make([]byte, 1))
				testsupport.MustTrue(t, n == 1, "round %d: Read failed before its deadline: %v", round, err)
			} else {
				at := time.Now().Add(time.Millisecond)
				c.SetReadDeadline(at)
				_, err := c.Read(make([]byte, 1)) // blocks if the deadline is lost
				testsupport.MustTrue(t, errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(at), "round %d: error %v, %v after the deadline", round, err, time.Since(at))
			}
		}
	})
}

// BenchmarkDeadline moves a deadline forward with each request and never reaches it. It compares
// the lazy deadline with the runtime's.
func BenchmarkDeadline(b *testing.B) {
	c, _ := connect(b, "tcp")
	for name, set := range map[string]func(time.Time) error{"lazy": c.SetReadDeadline, "plain": c.Conn.SetReadDeadline} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			at := time.Now().Add(time.Hour)
			for range b.N {
				at = at.Add(time.Microsecond)
				testsupport.NoError(b, set(at))
			}
		})
	}
}
