//go:build linux

package listen

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"adbuffer/internal/test/testsupport"
)

// process stands for a process that shares its sockets.
type process struct {
	*Sockets
	t    *testing.T
	logs *observer.ObservedLogs
	away chan bool // the argument of onSuccession
}

// startProcess opens both sockets with server.reuse_port.
func startProcess(t *testing.T, network, address, admin string) *process {
	t.Helper()
	return startTLSProcess(t, network, address, admin, nil)
}

// startTLSProcess is startProcess with TLS on the traffic socket, unless c is nil.
func startTLSProcess(t *testing.T, network, address, admin string, c *Certificates) *process {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	traffic, operators := trafficAt(network, address), adminAt(admin)
	traffic.Certificates = c
	traffic.ReusePort, operators.ReusePort = true, true
	s, err := Open(traffic, operators, zap.New(core))
	must(t, err)
	t.Cleanup(s.Close)
	return &process{s, t, logs, make(chan bool, 10)}
}

func (p *process) serve() { p.Serving(func(away bool) { p.away <- away }) }

func (p *process) wantAway(away bool) {
	p.t.Helper()
	select {
	case got := <-p.away:
		testsupport.Equal(p.t, got, away, "another process serves: %v")
	case <-time.After(patience):
		p.t.Fatalf("no report that another process serves: %v", away)
	}
}

func TestTheNextProcessSharesTheQueueInsteadOfHavingItsOwn(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := reserve(t)
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "ad.sock")
			}
			admin := reserve(t)
			first := startProcess(t, network, address, admin)
			first.serve()
			for range 5 {
				dial(t, first.Traffic.Addr())
			}
			second := startProcess(t, network, address, admin)
			second.serve()
			first.wantAway(true)
			wantAccepted(t, second.Traffic, 2) // clients of the first process too
			first.BeginDrain()
			first.CloseTraffic()
			wantClosed(t, first.Traffic) // it leaves three connections to the second
			dial(t, second.Traffic.Addr())
			wantAccepted(t, second.Traffic, 4)

			third := startProcess(t, network, address, admin)
			third.serve()
			second.wantAway(true)
			dial(t, third.Traffic.Addr())
			wantAccepted(t, second.Traffic, 1) // until it is stopped
			// When one process closes, the other processes still listen.
			third.Close()
			second.wantAway(false)
			dial(t, second.Traffic.Addr())
			wantAccepted(t, second.Traffic, 1)
			second.CloseTraffic()
			wantClosed(t, second.Traffic)
			_, err := net.Dial(network, address)
			testsupport.True(t, err != nil, "a process still listens")
			_, err = os.Lstat(address)
			testsupport.True(t, network != "unix" || os.IsNotExist(err), "the last process left its socket behind: %v", err)
			startProcess(t, network, address, admin) // a new first process
		})
	}
}

// The next process may take over the sockets, and then find that it cannot start. It must not take
// connections from the queue that it shares.
func TestAProcessThatDoesNotStartLeavesTheQueueToThePreviousOne(t *testing.T) {
	address := reserve(t)
	first := startProcess(t, "tcp", address, reserve(t))
	client := dial(t, first.Traffic.Addr())
	awaitQueued(t, first.Traffic)
	second := startProcess(t, "tcp", address, reserve(t))
	second.Close()
	queued := acceptQueued(first.Traffic.socket)
	testsupport.MustTrue(t, len(queued) == 1 && queued[0].RemoteAddr().String() == client.LocalAddr().String(), "the queue has %v, want the connection of %v", queued, client.LocalAddr())
	must(t, queued[0].Close())
}

// One process serves operators: the newest one that serves clients.
func TestTheNewestProcessServesOperators(t *testing.T) {
	address, admin := reserve(t), reserve(t)
	first := startProcess(t, "tcp", address, admin)
	first.serve()
	second := startProcess(t, "tcp", address, admin)
	dial(t, first.Admin.Addr())
	wantAccepted(t, first.Admin, 1) // the second does not serve yet
	second.serve()
	first.wantAway(true)
	dial(t, first.Admin.Addr())
	wantAccepted(t, second.Admin, 1)
	dial(t, first.Admin.Addr())
	second.Close()
	first.wantAway(false)
	wantAccepted(t, first.Admin, 1) // the second ended before it accepted this one
	testsupport.Equal(t, first.logs.FilterMessageSnippet("has ended; this one serves alone again").Len(), 1, "%d lines about that: %v", first.logs.All())
}

func TestAnAdminListenerElsewhereIsNotTakenOver(t *testing.T) {
	address := reserve(t)
	first := startProcess(t, "tcp", address, "127.0.0.1:0")
	second := startProcess(t, "tcp", address, "127.0.0.1:0")
	testsupport.True(t, first.Admin.Addr().String() != second.Admin.Addr().String(), "port 0 must be another port for each process")
	first.serve()
	second.serve()
	testsupport.Eventually(t, "the first knows of the second", func() bool { return first.logs.FilterMessageSnippet("has taken over").Len() == 1 })
	for _, p := range []*process{first, second} { // each serves its own operators
		dial(t, p.Admin.Addr())
		wantAccepted(t, p.Admin, 1)
		testsupport.True(t, len(p.away) <= 0, "a report said that another process serves operators")
	}
	first.CloseTraffic()
	dial(t, second.Traffic.Addr())
	wantAccepted(t, second.Traffic, 1)
}

// A process that drains accepts no more connections, unless the next process ends.
func TestADrainingProcessAcceptsOnlyIfNoOtherProcessDoes(t *testing.T) {
	address := reserve(t)
	first := startProcess(t, "tcp", address, "127.0.0.1:0")
	first.serve()
	first.BeginDrain()
	dial(t, first.Traffic.Addr())
	wantAccepted(t, first.Traffic, 1) // no other process is left
	second := startProcess(t, "tcp", address, "127.0.0.1:0")
	second.serve()
	testsupport.Eventually(t, "the first knows of the second", func() bool { return first.logs.FilterMessageSnippet("has taken over").Len() == 1 })
	accepted := make(chan error)
	go func() {
		c, err := first.Traffic.Accept()
		if err == nil {
			err = c.Close()
		}
		accepted <- err
	}()
	for range 5 {
		dial(t, second.Traffic.Addr())
	}
	wantAccepted(t, second.Traffic, 5)
	second.Close()
	dial(t, first.Traffic.Addr())
	must(t, <-accepted)
	first.CloseTraffic()
}

// Processes that start at the same time must share one socket.
func TestProcessesThatStartAtOnceShareOneQueue(t *testing.T) {
	address := reserve(t)
	all := make(chan *Sockets)
	const n = 6
	for range n {
		go func() {
			traffic := trafficAt("tcp", address)
			traffic.ReusePort = true
			s, err := Open(traffic, adminAt("127.0.0.1:0"), zap.NewNop())
			testsupport.True(t, err == nil, "%v", err)
			all <- s
		}()
	}
	var sockets []*Sockets
	for range n {
		s := <-all
		t.Cleanup(s.Close)
		sockets = append(sockets, s)
	}
	for i, s := range sockets[:n-1] {
		dial(t, s.Traffic.Addr())
		wantAccepted(t, sockets[i+1].Traffic, 1)
		s.CloseTraffic()
		wantClosed(t, s.Traffic)
	}
}

func TestEqualAddressesHaveOneMeetingSocket(t *testing.T) {
	name := func(address string) string {
		n, ok := meetingName(trafficAt("tcp", address))
		testsupport.True(t, ok, "%s has no meeting socket", address)
		return n
	}
	testsupport.True(t, name(":8080") == name("0.0.0.0:8080") && name(":8080") == name("[::]:8080") && name("127.0.0.1:80") == name("127.0.0.1:http"), "one address has several meeting sockets")
	testsupport.True(t, name(":8080") != name(":8081") && name(":8080") != name("127.0.0.1:8080"), "several addresses have one meeting socket")
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/a", 0o700))
	must(t, os.Mkdir(dir+"/b", 0o700))
	must(t, os.Symlink("a", dir+"/link"))
	a, _ := meetingName(trafficAt("unix", dir+"/a/ad.sock"))
	link, _ := meetingName(trafficAt("unix", dir+"/link/ad.sock"))
	b, _ := meetingName(trafficAt("unix", dir+"/b/ad.sock"))
	other, _ := meetingName(trafficAt("unix", dir+"/a/other.sock"))
	testsupport.True(t, a == link && a != b && a != other, "the meeting sockets of unix sockets: %q, %q, %q, %q", a, link, b, other)
	for _, address := range []string{"127.0.0.1:0", "127.0.0.1:none", "x"} {
		n, ok := meetingName(trafficAt("tcp", address))
		testsupport.True(t, !ok, "%s has a meeting socket: %s", address, n)
	}
}

// otherProcess is another program that has bound the meeting socket of an address.
func otherProcess(t *testing.T, address string, respond func(*net.UnixConn)) {
	t.Helper()
	name, _ := meetingName(trafficAt("tcp", address))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			respond(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
}

func TestAProcessThatReceivesNonsenseBindsItsOwnSocketAndLogsThat(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer other.Close()
	connected := dial(t, other.Addr())
	handed := func(c *net.UnixConn, from []syscall.Conn, sockets ...handedSocket) {
		text, _ := json.Marshal(sockets)
		withFDs(func(fds ...int) error {
			_, _, err := c.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
			return err
		}, from...)
	}
	for name, respond := range map[string]func(*net.UnixConn){
		"nothing":    func(*net.UnixConn) {},
		"no JSON":    func(c *net.UnixConn) { c.Write([]byte("sockets!")) },
		"no sockets": func(c *net.UnixConn) { c.Write([]byte(`[{"Name":"traffic"}]`)) },
		"too much":   func(c *net.UnixConn) { c.Write([]byte(strings.Repeat("[", 100_000))) },
		"another port": func(c *net.UnixConn) {
			handed(c, []syscall.Conn{other.(listenSocket)}, handedSocket{Name: "traffic", Network: "tcp", Address: "127.0.0.1:1"})
		},
		"a connection": func(c *net.UnixConn) {
			handed(c, []syscall.Conn{connected.(syscall.Conn)}, handedSocket{Name: "traffic", Network: "tcp", Address: "127.0.0.1:1"})
		},
		"more names": func(c *net.UnixConn) { handed(c, []syscall.Conn{other.(listenSocket)}, handedSocket{}, handedSocket{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := reserve(t)
			otherProcess(t, address, respond)
			p := startProcess(t, "tcp", address, "127.0.0.1:0")
			dial(t, p.Traffic.Addr())
			wantAccepted(t, p.Traffic, 1)
			testsupport.Equal(t, p.logs.FilterMessageSnippet("did not respond").Len(), 1, "%d lines about that: %v", p.logs.All())
		})
	}
}

func TestAHangingProcessDelaysTheNextForABoundedTime(t *testing.T) {
	testsupport.Long(t)
	t.Parallel()
	address := reserve(t)
	released := make(chan struct{})
	otherProcess(t, address, func(*net.UnixConn) { <-released })
	p := startProcess(t, "tcp", address, "127.0.0.1:0")
	close(released)
	dial(t, p.Traffic.Addr())
	wantAccepted(t, p.Traffic, 1)
}

func TestClientsResumeOnTheNextProcess(t *testing.T) {
	a := newAuthority(t)
	first, second := loadCerts(t, a, nil), loadCerts(t, a, nil) // with another certificate
	client := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost", ClientSessionCache: new(firstSession)}
	address, admin := reserve(t), reserve(t)
	startTLSProcess(t, "tcp", address, admin, first.Certificates)
	testsupport.True(t, !resumes(t, first.Config(), client), "resumed without a session")
	config := second.Config()
	testsupport.True(t, !resumes(t, config, client), "another listener's session is accepted")
	startTLSProcess(t, "tcp", address, admin, second.Certificates)
	testsupport.True(t, resumes(t, config, client), "not resumed on the process that took over")
	testsupport.True(t, resumes(t, first.Config(), client), "not resumed on the previous process, which serves too")
	third := loadCerts(t, a, nil)
	startTLSProcess(t, "unix", filepath.Join(t.TempDir(), "ad.sock"), admin, third.Certificates)
	testsupport.True(t, !resumes(t, third.Config(), client), "the session of a process at another address is accepted")
}
