package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
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
			if err := <-waited; err != nil {
				t.Fatal(err)
			}
			if err := c.Await(); err != nil { // still there
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

func TestAwaitEndsAtTheReadDeadlineAndByClose(t *testing.T) {
	c, _ := connect(t, "tcp")
	c.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	if err := c.Await(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
	// A deadline that was met and is moved on is met again, not before.
	next := time.Now().Add(30 * time.Millisecond)
	c.SetReadDeadline(next)
	if err := c.Await(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(next) {
		t.Errorf("got %v before its time", err)
	}
	c.SetReadDeadline(time.Time{})
	waited := make(chan error, 1)
	go func() { waited <- c.Await() }()
	c.Close()
	if err := <-waited; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want that it is closed", err)
	}
}

func TestAReadThatMovesItsDeadlineWhenItWaitsMovesItOnce(t *testing.T) {
	near, _ := tcpPair(t)
	calls := 0
	near.OnWait(func() {
		calls++
		near.SetReadDeadline(time.Now().Add(150 * time.Millisecond))
	}, nil)
	// An earlier deadline is armed: it fires while the Read waits, which then
	// goes on to the later one, and must not be told to wait anew.
	near.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var b [1]byte
	if _, err := near.Read(b[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the read ended with %v", err)
	}
	if calls != 1 {
		t.Errorf("told %d times to wait, want once", calls)
	}
}
