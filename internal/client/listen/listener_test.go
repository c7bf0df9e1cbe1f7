package listen

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/test/testsupport"
)

// Closing the socket would reset connections whose handshake the kernel has done.
func TestTheLastProcessAcceptsQueuedConnectionsBeforeItStops(t *testing.T) {
	for _, o := range []Options{trafficAt("tcp", "127.0.0.1:0"), trafficAt("unix", t.TempDir()+"/ad.sock")} {
		s := openAt(t, o)
		var clients []net.Conn
		for range 50 {
			c := dial(t, s.Traffic.Addr())
			_, err := c.Write([]byte("hello"))
			must(t, err)
			clients = append(clients, c)
		}
		s.CloseTraffic()
		for range clients {
			c, err := s.Traffic.Accept()
			must(t, err)
			_, err = c.Write([]byte("!"))
			must(t, err)
			var b [5]byte
			n, err := c.Read(b[:])
			testsupport.MustTrue(t, string(b[:n]) == "hello", "read %q, %v", b[:n], err)
			must(t, c.Close())
		}
		wantClosed(t, s.Traffic)
		for _, c := range clients {
			var b [1]byte
			n, err := c.Read(b[:])
			testsupport.MustTrue(t, n == 1, "%s: a client that was queued read %v", o.Network, err)
		}
		if c, err := net.Dial(s.Traffic.Addr().Network(), s.Traffic.Addr().String()); err == nil {
			t.Errorf("%s: the socket still accepts connections", o.Network)
			c.Close()
		}
		s.CloseTraffic() // again
	}
}

// The next process was killed, and this process has not noticed it. No other process would accept
// the queued connections.
func TestTheLastProcessAcceptsQueuedConnectionsThoughItIsPaused(t *testing.T) {
	s := openAt(t, trafficAt("tcp", "127.0.0.1:0"))
	s.Traffic.pause(true)
	dial(t, s.Traffic.Addr())
	awaitQueued(t, s.Traffic)
	s.CloseTraffic()
	wantAccepted(t, s.Traffic, 1)
	wantClosed(t, s.Traffic)
}

func TestCloseEndsAnAcceptThatWaitsPausedOrNot(t *testing.T) {
	for _, paused := range []bool{false, true} {
		s := openAt(t, trafficAt("tcp", "127.0.0.1:0"))
		if paused {
			s.Traffic.pause(true)
		}
		ended := make(chan error)
		go func() {
			_, err := s.Traffic.Accept()
			ended <- err
		}()
		must(t, s.Traffic.Close())
		testsupport.ErrorIs(t, <-ended, net.ErrClosed, "Accept ended with %v")
	}
}

func TestAPausedListenerLeavesConnectionsInTheQueue(t *testing.T) {
	s := openAt(t, trafficAt("tcp", "127.0.0.1:0"))
	accepted := make(chan net.Conn, 10)
	go func() {
		defer close(accepted)
		for {
			c, err := s.Traffic.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial(t, s.Traffic.Addr())
	(<-accepted).Close()
	s.Traffic.pause(true)
	s.Traffic.pause(true)
	for range 3 {
		dial(t, s.Traffic.Addr())
	}
	time.Sleep(20 * time.Millisecond)
	if n := len(accepted); n > 1 { // one accept may have been in progress
		t.Errorf("a paused listener accepted %d", n)
	}
	s.Traffic.pause(false)
	s.Traffic.pause(false)
	for range 3 {
		(<-accepted).Close()
	}
	must(t, s.Traffic.Close())
	for c := range accepted {
		t.Errorf("%v was accepted twice", c.RemoteAddr())
	}
}

// shortSocket fails its first calls of Accept.
type shortSocket struct {
	listenSocket
	errs []error
}

func (s *shortSocket) Accept() (net.Conn, error) {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	return s.listenSocket.Accept()
}

// When files run out, Accept must slow down, but not stop. A connection that failed in the queue, or
// that a firewall forbids, must not stop it either: accept(2) returns the error of that connection.
func TestAcceptContinuesAfterAFailureAndCountsIt(t *testing.T) {
	s := openAt(t, trafficAt("tcp", "127.0.0.1:0"))
	core, lines := observer.New(zap.InfoLevel)
	s.Traffic.log = zap.New(core)
	for _, errs := range [][]error{{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}, {syscall.EPROTO}, {syscall.EHOSTUNREACH}, {syscall.EPERM}} {
		before := s.Traffic.failed.Load()
		s.Traffic.socket = &shortSocket{s.Traffic.socket, errs}
		dial(t, s.Traffic.Addr())
		wantAccepted(t, s.Traffic, 1)
		testsupport.Equal(t, s.Traffic.failed.Load()-before, uint64(len(errs)), "%[2]v: %[1]d failures were counted", errs)
	}
	if all := lines.All(); len(all) != 1 || all[0].ContextMap()["listener"] != "traffic" || !strings.Contains(all[0].ContextMap()["error"].(string), "too many open files") {
		t.Errorf("the log has %v, want the first failure of the minute", all)
	}
	s.Traffic.socket = &shortSocket{s.Traffic.socket, []error{syscall.EINVAL}}
	_, err := s.Traffic.Accept()
	testsupport.ErrorIs(t, err, syscall.EINVAL, "a permanent error is hidden: %v")
}

// socket.New has a fast path for these types.
func TestConnectionsAreWrappedOnlyForThePROXYProtocol(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	other := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	for _, row := range []struct {
		network string
		peers   []netip.Prefix
		on      bool
		proxied bool
	}{
		{"tcp", nil, false, false}, {"tcp", trusted, true, true}, {"tcp", other, true, false}, {"tcp", nil, true, false},
		{"unix", nil, false, false}, {"unix", other, true, true}, {"unix", nil, true, true},
	} {
		address := "127.0.0.1:0"
		if row.network == "unix" {
			address = t.TempDir() + "/s"
		}
		s := openAt(t, trafficAt(row.network, address))
		if row.on {
			s.Traffic.Trust(row.peers, time.Second)
		}
		dial(t, s.Traffic.Addr())
		c, err := s.Traffic.Accept()
		must(t, err)
		p, proxied := c.(*Proxied)
		testsupport.True(t, proxied == row.proxied, "%+v: accepted a %T", row, c)
		if proxied {
			c = p.NetConn()
		}
		switch c.(type) {
		case *net.TCPConn, *net.UnixConn:
		default:
			t.Errorf("%+v: accepted a %T", row, c)
		}
		must(t, c.Close())
	}
}
