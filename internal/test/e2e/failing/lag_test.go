package failing

import (
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// adbuffer is stopped during a handshake, for longer than timeouts.tls_handshake. The SSP responds
// when adbuffer runs again. The handshake must not time out then, and the SSP must not be blamed.
func TestTimeInWhichAdbufferIsStoppedCountsAgainstNoHandshake(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	l := testsupport.Listen(t)
	begun, proceed := make(chan struct{}), make(chan struct{})
	go func() {
		client, err := l.Accept()
		if err != nil {
			return
		}
		hello := make([]byte, 1)
		client.Read(hello)
		close(begun)
		<-proceed
		server, err := net.Dial("tcp", s.Addr())
		if err != nil {
			return
		}
		server.Write(hello)
		go copyAndClose(client, server)
		copyAndClose(server, client)
	}()

	ab := e2e.Start(t, e2e.Single("https://"+l.Addr().String()+"/bid",
		"tls: {server_name: localhost, ca_file: "+e2e.CAFile(t, s)+"}", "timeouts: {tls_handshake: 3s}", "retry: {max: 0}"))
	var wg sync.WaitGroup
	wg.Go(func() { ab.Get("/fillbuffer").WantFill("openx") })
	<-begun
	ab.Signal(syscall.SIGSTOP)
	time.Sleep(4 * time.Second)
	ab.Signal(syscall.SIGCONT)
	time.Sleep(500 * time.Millisecond) // the timers of the stopped time fire
	close(proceed)
	wg.Wait()
	for _, kind := range []string{"timeout", "tls", "other"} {
		ab.WantMetric(0, "adbuffer_pool_dial_errors_total", "kind="+kind)
	}
}

func copyAndClose(to, from net.Conn) {
	io.Copy(to, from)
	to.Close()
	from.Close()
}
