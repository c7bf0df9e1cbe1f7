package http1

import (
	"net"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/socket"
)

// A Read or Write that is about to wait asks the HTTP/2 connection how long, and so needs its lock. HangUp
// is called with that lock held, and a close of the socket waits for that Read.
func TestHangUpDoesNotWaitForAReadThatBegins(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	testsupport.NoError(t, err)
	c := &Conn{socket: socket.New(conn)}
	begins, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	c.socket.OnWait(func() time.Time {
		close(begins)
		<-goOn
		return time.Time{}
	}, nil)
	go func() {
		_, err := c.socket.Read(make([]byte, 1))
		ended <- err
	}()
	<-begins
	hungUp := make(chan struct{})
	go func() {
		c.HangUp()
		close(hungUp)
	}()
	select {
	case <-hungUp:
	case <-time.After(testsupport.Patience):
		t.Error("HangUp waits for the Read")
	}
	close(goOn)
	testsupport.True(t, <-ended != nil, "the socket is not closed")
}
