package socket

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestAwaitReturnsWhenBytesHaveComeAndTakesNone(t *testing.T) {
	onBoth(t, func(t *testing.T, c *Conn, peer net.Conn) {
		waited := make(chan error, 1)
		go func() { waited <- c.Await() }()
		time.Sleep(20 * time.Millisecond)
		testsupport.MustTrue(t, len(waited) == 0, "it did not wait")
		peer.Write([]byte("hello"))
		testsupport.NoError(t, <-waited)
		testsupport.NoError(t, c.Await()) // the byte is still there
		wantRead(t, c, "hello")
		peer.Close()
		testsupport.NoError(t, c.Await()) // the end of the stream is no error
		testsupport.Equal(t, readError(c), io.EOF, "Read: %v")
	})
}

func TestAwaitEndsByClose(t *testing.T) {
	c, _ := connect(t, "tcp")
	waited := make(chan error, 1)
	go func() { waited <- c.Await() }()
	c.Close()
	testsupport.ErrorIs(t, <-waited, net.ErrClosed, "Await ended with %v")
}

func TestAReadThatIsGivenItsDeadlineWhenItWaitsIsGivenItOnce(t *testing.T) {
	near, _ := connect(t, "tcp")
	calls := 0
	near.OnWait(func() time.Time {
		calls++
		return time.Now().Add(150 * time.Millisecond)
	}, nil)
	// An earlier deadline is armed. It fires while the Read waits. The Read then waits for the later deadline and
	// must not call OnWait's function again. On a slow machine the deadline may fire before the Read waits. Then
	// the Read ends without a wait.
	testsupport.Eventually(t, "a Read waits", func() bool {
		near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		var b [1]byte
		_, err := near.Read(b[:])
		testsupport.ErrorIs(t, err, os.ErrDeadlineExceeded, "the read ended with %v")
		return calls > 0
	})
	testsupport.Equal(t, calls, 1, "OnWait's function was called %d times, want once")
}
