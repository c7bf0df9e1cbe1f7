package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"

	"golang.org/x/sys/unix"
)

// The size exceeds any kernel buffer, so that reads and writes must wait.
func TestLargeTransfersArriveWholeInBothDirections(t *testing.T) {
	onBoth(t, func(t *testing.T, c *Conn, peer net.Conn) {
		c.SetDeadline(time.Now().Add(patience))
		pattern := make([]byte, 4093)
		for i := range pattern {
			pattern[i] = byte(i * 7 >> 3)
		}
		want := bytes.Repeat(pattern, 4099)
		sent := make(chan error, 2)
		for _, w := range []io.Writer{c, peer} {
			go func() {
				n, err := w.Write(want)
				if err == nil && n != len(want) {
					err = io.ErrShortWrite
				}
				sent <- err
			}()
		}
		received := make(chan bool, 2)
		for _, r := range []io.Reader{c, peer} {
			go func() {
				got := make([]byte, len(want))
				_, err := io.ReadFull(r, got)
				received <- err == nil && bytes.Equal(got, want)
			}()
		}
		for range 2 {
			testsupport.NoError(t, <-sent)
			testsupport.MustTrue(t, <-received, "the received bytes differ from the sent bytes")
		}
	})
}

func TestWriteToAPeerThatIsGoneFails(t *testing.T) {
	c, peer := connect(t, "tcp")
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	awaitState(t, c, Ended)
	n, err := c.Write([]byte("x"))
	if n != 0 || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("%d bytes, error %v; want EPIPE or ECONNRESET", n, err)
	}
	ne := net.Error(nil)
	testsupport.MustTrue(t, errors.As(err, &ne) && !ne.Timeout(), "%v is no net.Error, or a timeout", err)
}

func TestReadEndsWithThePeerOrTheConnection(t *testing.T) {
	c, peer := connect(t, "tcp")
	peer.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("%d bytes, error %v; want EOF", n, err)
	}

	c, peer = connect(t, "tcp")
	done := make(chan error, 1)
	waits := make(chan struct{}, 1)
	c.OnWait(func() time.Time { waits <- struct{}{}; return time.Time{} }, nil)
	go func() {
		_, err := c.Read(make([]byte, 1))
		done <- err
	}()
	<-waits
	c.Close()
	testsupport.ErrorIs(t, <-done, net.ErrClosed, "error %v")
	testsupport.ErrorIs(t, writeError(c), net.ErrClosed, "error %v")
	peer.Close()

	c, peer = connect(t, "tcp")
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	testsupport.ErrorIs(t, readError(c), syscall.ECONNRESET, "error %v")
}

// OnWait sets a deadline only for reads and writes that must wait.
func TestOnWaitIsCalledOnlyWhereAReadOrWriteWaits(t *testing.T) {
	c, peer := connect(t, "tcp")
	var reads, writes atomic.Int32
	c.OnWait(func() time.Time {
		reads.Add(1)
		return time.Now().Add(time.Millisecond)
	}, func() time.Time {
		writes.Add(1)
		return time.Now().Add(time.Millisecond)
	})
	peer.Write([]byte("x"))
	awaitState(t, c, Readable)
	testsupport.NoError(t, readError(c))
	testsupport.NoError(t, writeError(c))
	testsupport.True(t, reads.Load()+writes.Load() == 0, "waited %d and %d times", reads.Load(), writes.Load())
	var ne net.Error
	err := readError(c)
	testsupport.MustTrue(t, errors.As(err, &ne) && ne.Timeout() && reads.Load() != 0, "error %v; waited %d times", err, reads.Load())
	_, err = c.Write(make([]byte, 64<<20))
	testsupport.MustTrue(t, errors.As(err, &ne) && ne.Timeout() && writes.Load() != 0, "error %v; waited %d times", err, writes.Load())
}

// The deadline of a wait ends with its Read or Write, and does not apply to the next one.
func TestDeadlineOfOneReadOrWriteIsNotThatOfTheNext(t *testing.T) {
	testsupport.Long(t)
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			const limit = 2 * time.Second
			c, peer := connect(t, network)
			waits := make(chan struct{}, 100)
			next := limit
			var until time.Time // the last deadline
			deadline := func() time.Time { until = time.Now().Add(next); waits <- struct{}{}; return until }
			c.OnWait(deadline, deadline)

			read := func() error {
				_, err := c.Read(make([]byte, 1))
				return err
			}
			done := make(chan error, 1)
			go func() { done <- read() }()
			<-waits
			peer.Write([]byte("x"))
			testsupport.NoError(t, <-done)
			time.Sleep(time.Until(until)) // the deadline of that Read
			next = patience
			go func() { done <- read() }()
			<-waits
			peer.Write([]byte("x"))
			testsupport.MustEqual(t, <-done, nil, "a Read failed at the deadline of the previous one: %v")

			next, until = limit, time.Time{} // a Write that does not wait sets no deadline
			big := make([]byte, 16<<20)
			write := func(f func([]byte) (int, error), p []byte) {
				_, err := f(p)
				done <- err
			}
			go io.Copy(io.Discard, peer)
			go write(c.Write, big[:6<<20])
			testsupport.NoError(t, <-done)
			time.Sleep(time.Until(until))
			next = patience
			for _, f := range []func([]byte) (int, error){c.Write, c.WriteInBurst} {
				go write(f, big)
				testsupport.MustEqual(t, <-done, nil, "a Write failed at the deadline of the previous one: %v")
			}
		})
	}
}

// An interrupted Read takes bytes that have arrived, and does not wait, at any moment of the
// interrupt.
func TestInterruptedReadDoesNotWait(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			for round := range 100 {
				c, peer := connect(t, network)
				c.OnWait(func() time.Time { return time.Now().Add(patience) }, nil)
				ended := make(chan error, 1)
				go func() {
					_, err := c.Read(make([]byte, 1))
					ended <- err
				}()
				for range round % 50 {
					runtime.Gosched() // the Read has begun, or waits, or neither
				}
				c.Interrupt()
				testsupport.ErrorIs(t, <-ended, os.ErrDeadlineExceeded, "the read ended with %v")
				peer.Write([]byte("x"))
				awaitState(t, c, Readable)
				n, err := c.Read(make([]byte, 1))
				testsupport.MustTrue(t, n == 1 && err == nil, "bytes that have arrived are not read: %v", err)
				testsupport.ErrorIs(t, readError(c), os.ErrDeadlineExceeded, "the next read ended with %v")
				c.Close()
				peer.Close()
			}
		})
	}
}

// A Read whose deadline has passed takes bytes that have arrived before it fails.
func TestReadTakesWhatHasArrivedAtItsDeadline(t *testing.T) {
	c, peer := connect(t, "tcp")
	c.OnWait(func() time.Time {
		peer.Write([]byte("x"))
		for c.sys.Poll(fdOf(t, c), unix.POLLIN) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		return time.Now().Add(-time.Second)
	}, nil)
	wantRead(t, c, "x")
}

func fdOf(t *testing.T, c *Conn) (fd uintptr) {
	t.Helper()
	testsupport.NoError(t, c.raw.Control(func(f uintptr) { fd = f }))
	return fd
}

// The scheduler does not know these system calls, so none may ever wait, not even on a socket in
// blocking mode. On one processor, no other goroutine would run, and this test would hang.
func TestSystemCallsHoldNoProcessorOnASocketThatBlocks(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, network := range networks {
		for name, call := range map[string]func(c *Conn) error{
			"Read":         func(c *Conn) error { _, err := c.Read(make([]byte, 1)); return err },
			"Write":        func(c *Conn) error { _, err := c.Write(make([]byte, 64<<20)); return err },
			"WriteInBurst": func(c *Conn) error { _, err := c.WriteInBurst(make([]byte, 64<<20)); return err },
			"Await":        func(c *Conn) error { return c.Await() },
		} {
			t.Run(network+" "+name, func(t *testing.T) {
				c, _ := connect(t, network)
				testsupport.NoError(t, syscall.SetNonblock(int(fdOf(t, c)), false))
				ended := make(chan error)
				go func() { ended <- call(c) }()
				for range 100 {
					runtime.Gosched()
				}
				testsupport.True(t, !c.HasInput(), "bytes have arrived")
				c.Close()
				testsupport.ErrorIs(t, <-ended, net.ErrClosed, "it ended with %v")
			})
		}
	}
}

// BenchmarkRead and BenchmarkWrite measure one small transfer, including the peer's half, with this
// package's system calls and with those of package net.
func BenchmarkRead(b *testing.B) {
	c, peer := connect(b, "tcp")
	for name, r := range map[string]io.Reader{"ours": c, "net": c.Conn} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			p := make([]byte, 1000)
			for range b.N {
				peer.Write(p)
				if _, err := io.ReadFull(r, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	c, peer := connect(b, "tcp")
	for name, w := range map[string]io.Writer{"ours": c, "net": c.Conn} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			p := make([]byte, 1000)
			for range b.N {
				if _, err := w.Write(p); err != nil {
					b.Fatal(err)
				}
				io.ReadFull(peer, p)
			}
		})
	}
}
