package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// More than any kernel buffer, so that reads and writes must wait in between.
func TestLargeTransfersArriveWholeInBothDirections(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c, peer := connect(t, network)
			c.SetDeadline(time.Now().Add(patience))
			want := make([]byte, 16<<20)
			for i := range want {
				want[i] = byte(i * 7 >> 3)
			}
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
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
				if !<-received {
					t.Fatal("what arrived is not what was sent")
				}
			}
		})
	}
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
	if ne := net.Error(nil); !errors.As(err, &ne) || ne.Timeout() {
		t.Fatalf("%v is no net.Error, or a timeout", err)
	}
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
	c.OnWait(func() { waits <- struct{}{} }, nil)
	go func() {
		_, err := c.Read(make([]byte, 1))
		done <- err
	}()
	<-waits
	c.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("error %v, want %v", err, net.ErrClosed)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("error %v, want %v", err, net.ErrClosed)
	}
	peer.Close()

	c, peer = connect(t, "tcp")
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("error %v, want ECONNRESET", err)
	}
}

// What OnWait is for: a deadline that is set only by reads and writes that
// must wait.
func TestOnWaitIsCalledOnlyWhereAReadOrWriteWaits(t *testing.T) {
	c, peer := connect(t, "tcp")
	var reads, writes atomic.Int32
	c.OnWait(func() {
		reads.Add(1)
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
	}, func() {
		writes.Add(1)
		c.SetWriteDeadline(time.Now().Add(time.Millisecond))
	})
	peer.Write([]byte("x"))
	awaitState(t, c, Readable)
	if _, err := c.Read(make([]byte, 1)); err != nil || reads.Load() != 0 {
		t.Fatalf("error %v; waited %d times", err, reads.Load())
	}
	if _, err := c.Write([]byte("x")); err != nil || writes.Load() != 0 {
		t.Fatalf("error %v; waited %d times", err, writes.Load())
	}
	var ne net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() || reads.Load() == 0 {
		t.Fatalf("error %v; waited %d times", err, reads.Load())
	}
	if _, err := c.Write(make([]byte, 64<<20)); !errors.As(err, &ne) || !ne.Timeout() || writes.Load() == 0 {
		t.Fatalf("error %v; waited %d times", err, writes.Load())
	}
}

// BenchmarkRead and BenchmarkWrite are one small transfer, the peer's half of
// it included, with our system calls and with those of package net.
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
