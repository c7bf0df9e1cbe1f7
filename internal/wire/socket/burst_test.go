package socket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

func TestBurstsDeliverEachConnectionItsOwnBytesInOrder(t *testing.T) {
	const conns, writes = 16, 100
	var wg sync.WaitGroup
	for i := range conns {
		near, far := connect(t, "tcp")
		wg.Go(func() {
			for j := range writes {
				msg := fmt.Appendf(nil, "%d/%d;", i, j)
				n, err := near.WriteInBurst(msg)
				testsupport.True(t, n == len(msg) && err == nil, "wrote %d of %d bytes: %v", n, len(msg), err)
			}
			near.Close()
		})
		wg.Go(func() {
			var want []byte
			for j := range writes {
				want = fmt.Appendf(want, "%d/%d;", i, j)
			}
			got, err := io.ReadAll(far)
			testsupport.True(t, err == nil && bytes.Equal(got, want), "connection %d got %d bytes (%v), want its own %d", i, len(got), err, len(want))
		})
	}
	wg.Wait()
}

// A goroutine sends the bytes of two connections, and the other goroutine waits until its own are sent.
func TestAWriterWaitsForTheOneThatSendsItsBytes(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that both find the same burst
	first, _ := connect(t, "tcp")
	second, far := connect(t, "tcp")
	s := &first.burstWrite
	s.socket, s.wake = &first.out, make(chan struct{}, 1)
	s.sendFunc = func(fd uintptr) {
		for range 10 {
			runtime.Gosched() // the second goroutine waits
		}
		first.out.sendNow(fd)
	}
	const rounds = 20
	for range rounds {
		var all sync.WaitGroup
		for _, c := range []*Conn{second, first} { // the last that is started runs first
			all.Go(func() {
				n, err := c.WriteInBurst([]byte("x"))
				testsupport.True(t, n == 1 && err == nil, "wrote %d bytes: %v", n, err)
			})
		}
		all.Wait()
	}
	second.Close()
	got, err := io.ReadAll(far)
	testsupport.True(t, err == nil && len(got) == rounds, "%d bytes arrived (%v), want %d", len(got), err, rounds)
}

func TestFullSocketInABurstWaitsAloneAndLosesNothing(t *testing.T) {
	full, slowReader := connect(t, "tcp")
	quick, quickReader := connect(t, "tcp")
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than the socket buffers hold
	ended := make(chan error, 1)
	go func() {
		n, err := full.WriteInBurst(big)
		if err == nil && n != len(big) {
			err = fmt.Errorf("wrote %d of %d bytes", n, len(big))
		}
		ended <- err
	}()
	// The other connections do not wait, even if they often share a burst with the full one.
	go io.Copy(io.Discard, quickReader)
	for range 100 {
		_, err := quick.WriteInBurst([]byte("x"))
		testsupport.NoError(t, err)
	}
	testsupport.MustTrue(t, len(ended) == 0, "16 MiB fitted into the socket's buffers")
	got := make([]byte, len(big))
	_, err := io.ReadFull(slowReader, got)
	testsupport.MustTrue(t, err == nil && bytes.Equal(got, big), "the slow reader got other bytes: %v", err)
	testsupport.NoError(t, <-ended)
}

func TestBurstReturnsEachWriterItsOwnError(t *testing.T) {
	closed, _ := connect(t, "tcp")
	closed.Close()
	if n, err := closed.WriteInBurst([]byte("x")); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed connection: %d, %v", n, err)
	}
	reset, peer := connect(t, "tcp")
	peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	for deadline := time.Now().Add(patience); ; {
		_, err := reset.WriteInBurst([]byte("x"))
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			break
		}
		testsupport.MustTrue(t, !time.Now().After(deadline), "writing to a connection that was reset: %v", err)
	}
	fine, far := connect(t, "tcp")
	n, err := fine.WriteInBurst([]byte("y"))
	testsupport.True(t, n == 1 && err == nil, "an intact connection: %d, %v", n, err)
	var got [1]byte
	_, err = io.ReadFull(far, got[:])
	testsupport.True(t, err == nil && got[0] == 'y', "got %q, %v", got, err)
}
