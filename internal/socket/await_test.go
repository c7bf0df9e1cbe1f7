package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"adbuffer/internal/testsupport"
)

func TestAwaitReturnsWhenBytesHaveComeAndTakesNone(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c, peer := connect(t, network)
			waited := make(chan error, 1)
			go func() { waited <- c.Await() }()
			select {
			case err := <-waited:
				t.Fatalf("it did not wait: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			peer.Write([]byte("hello"))
			testsupport.NoError(t, <-waited)
			if err := c.Await(); err != nil { // the byte is still there
				t.Fatal(err)
			}
			p := make([]byte, 10)
			if n, err := c.Read(p); string(p[:n]) != "hello" || err != nil {
				t.Errorf("read %q, %v", p[:n], err)
			}
			peer.Close()
			if err := c.Await(); err != nil {
				t.Errorf("the end of the stream is an error: %v", err)
			}
			if n, err := c.Read(p); n != 0 || err != io.EOF {
				t.Errorf("read %d bytes, %v", n, err)
			}
		})
	}
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
	// An earlier deadline is armed. It fires while the Read waits. The Read then waits for the
	// later deadline and must not call OnWait's function again.
	// On a slow machine it may fire before the Read waits, which then ends without a wait.
	testsupport.Eventually(t, "a Read waits", func() bool {
		near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		var b [1]byte
		if _, err := near.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the read ended with %v", err)
		}
		return calls > 0
	})
	testsupport.Equal(t, calls, 1, "OnWait's function was called %d times, want once")
}
