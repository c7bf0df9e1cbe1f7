package socket

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestPeekReturnsWhatHasArrivedAndConsumesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, c *Conn, peer net.Conn) {
		testsupport.MustEqual(t, c.Peek(), Quiet, "Peek %d on a new connection")
		c.SetDeadline(time.Now().Add(-time.Second)) // a deadline has no effect
		peer.Write([]byte("ab"))
		awaitState(t, c, Readable)
		c.SetDeadline(time.Time{})
		b := make([]byte, 3)
		wantRead(t, c, "ab")
		testsupport.MustEqual(t, c.Peek(), Quiet, "Peek %d when all was read")
		peer.Write([]byte("c"))
		peer.Close()
		awaitState(t, c, Readable)
		c.Read(b)
		awaitState(t, c, Ended)
		c.Close()
		testsupport.MustEqual(t, c.Peek(), Ended, "Peek %d on a closed connection")
	})
}

func TestPeekFindsAReset(t *testing.T) {
	c, peer := connect(t, "tcp")
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	awaitState(t, c, Ended)
}

func TestPeekSocketMayRunBesideARead(t *testing.T) {
	c, peer := connect(t, "tcp")
	done := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		done <- err
	}()
	for range 1000 {
		testsupport.MustEqual(t, c.PeekSocket(), Quiet, "PeekSocket %d")
	}
	peer.Write([]byte("x"))
	testsupport.NoError(t, <-done)
}

// A pipe has no descriptor for Peek.
func TestPeekSeesNothingOnAPipe(t *testing.T) {
	ours, peer := net.Pipe()
	defer ours.Close()
	peer.Close()
	c := New(ours)
	testsupport.MustEqual(t, c.Peek(), Quiet, "Peek %d")
	testsupport.Equal(t, c.SendBuffer(), 0, "a pipe, which blocks every write, has a send buffer of %d bytes")
	c.SetNonblocking(true)
	_, err := c.Read(make([]byte, 1))
	testsupport.MustTrue(t, WouldBlock(err), "Read: %v, want an error for which WouldBlock is true", err)
}

func TestReadsThatMustNotBlockDoNot(t *testing.T) {
	c, peer := connect(t, "tcp")
	c.SetNonblocking(true)
	b := make([]byte, 4)
	_, err := c.Read(b)
	testsupport.MustTrue(t, WouldBlock(err), "Read: %v, want an error for which WouldBlock is true", err)
	// TLS continues after such an error only if it is a temporary net.Error.
	if ne, ok := err.(net.Error); !ok || !ne.Temporary() || !ne.Timeout() { //nolint:staticcheck // crypto/tls asks for Temporary
		t.Fatalf("%v is not a temporary net.Error", err)
	}
	peer.Write([]byte("ab"))
	awaitState(t, c, Readable)
	wantRead(t, c, "ab")
	peer.Close()
	awaitState(t, c, Ended)
	testsupport.MustEqual(t, readError(c), io.EOF, "Read: %v")
	c.Close()
	testsupport.ErrorIs(t, readError(c), net.ErrClosed, "Read: %v")
}

// BenchmarkPeek peeks at a quiet socket. It compares Peek with RawConn.Read, which packages outside
// of net usually use.
func BenchmarkPeek(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		c, _ := connect(b, "tcp")
		b.ReportAllocs()
		for range b.N {
			testsupport.MustTrue(b, c.Peek() == Quiet, "not quiet")
		}
	})
	b.Run("RawConn.Read", func(b *testing.B) {
		c, _ := connect(b, "tcp")
		var one [1]byte
		var errno error
		look := func(fd uintptr) bool {
			_, _, errno = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return true
		}
		b.ReportAllocs()
		for range b.N {
			if err := c.raw.Read(look); err != nil || errno != syscall.EAGAIN {
				b.Fatal(err, errno)
			}
		}
	})
}
