package drain

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// reservePort returns a loopback address whose port no other process gets until the end of the
// test. A socket with SO_REUSEPORT reserves the port and does not listen.
func reservePort(t *testing.T) string {
	t.Helper()
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err == nil {
		t.Cleanup(func() { unix.Close(fd) })
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	testsupport.NoError(t, err)
	at, err := unix.Getsockname(fd)
	testsupport.NoError(t, err)
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*unix.SockaddrInet4).Port}).String()
}

// shared is the environment of processes that hand over to their successors.
func shared(t *testing.T, listen string) []string {
	t.Helper()
	return []string{
		"ADBUFFER_SERVER_REUSE_PORT=true", "ADBUFFER_SERVER_LISTEN=" + listen, "ADBUFFER_ADMIN_LISTEN=" + reservePort(t),
		drainDelayed,
	}
}

func TestAProcessTakesOverUnderLoadAndNoRequestIsRefusedOrCut(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			s := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Lognormal(2e6, 20e6)})
			address := reservePort(t)
			if network == "unix" {
				address = "unix:" + filepath.Join(t.TempDir(), "ad.sock")
			}
			env, config := shared(t, address), e2e.Single(s.URL(), "pool: {min_idle: 2}")
			now := e2e.Start(t, config, env...)
			l := startLoad(now)
			for range 2 {
				next := e2e.Start(t, config, env...)
				next.WantLogged("taking over from the process that listens")
				now.Terminate(0)
				// Only the new process accepts now.
				testsupport.Eventually(t, "the new process serves requests", func() bool {
					return next.Scrape().Sum("adbuffer_ssp_requests_total") > 0
				})
				now = next
			}
			l.wantNothingLost(t)
			now.Terminate(0)
			if path, ok := strings.CutPrefix(address, "unix:"); ok {
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("the last process left its socket behind: %v", err)
				}
			}
		})
	}
}

// This is the same at the edge: over TLS, with HTTP/2, and with POSTs, which no client repeats by
// itself.
func TestAProcessTakesOverFromHTTP2ClientsToo(t *testing.T) {
	t.Parallel()
	s, a := e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Lognormal(2e6, 20e6)}), e2e.NewAuthority(t)
	env, config := shared(t, reservePort(t)), a.ServerSection("")+e2e.Single(s.URL())
	now := e2e.Start(t, config, env...)
	traffic := now.TrafficAddr // all processes use this address
	// A connection that is ready only after CloseIdleConnections would stay open without a timeout.
	keeping := &http.Transport{TLSClientConfig: a.ClientConfig(nil), ForceAttemptHTTP2: true, IdleConnTimeout: 5 * time.Second}
	defer keeping.CloseIdleConnections()
	// The other half of the clients makes a handshake for every request.
	leaving := &http.Transport{TLSClientConfig: a.ClientConfig(nil), ForceAttemptHTTP2: true, DisableKeepAlives: true, IdleConnTimeout: 5 * time.Second}
	defer leaving.CloseIdleConnections()
	var stopped atomic.Bool
	var sent atomic.Int64
	clients := make(chan error)
	const n = 8
	for i := range n {
		client := &http.Client{Transport: []*http.Transport{keeping, leaving}[i%2], Timeout: testsupport.Patience}
		go func() {
			for !stopped.Load() {
				res, err := client.Post("https://"+traffic+"/fillbuffer", "application/json", strings.NewReader(`{"id":"1"}`))
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if err == nil && (res.StatusCode != 200 || res.ProtoMajor != 2) {
						err = fmt.Errorf("got %s over %s", res.Status, res.Proto)
					}
				}
				if err != nil {
					clients <- err
					return
				}
				sent.Add(1)
			}
			clients <- nil
		}()
	}
	for range 2 {
		next := e2e.Start(t, config, env...)
		before := sent.Load()
		now.Terminate(0)
		testsupport.Eventually(t, "requests continue", func() bool { return sent.Load() > before+100 })
		now = next
	}
	stopped.Store(true)
	for range n {
		if err := <-clients; err != nil {
			t.Error(err)
		}
	}
	testsupport.Equal(t, s.Counters().Requests, uint64(sent.Load()), "the SSP got %d requests, not as many as got a response")
}

// The new process may die at any moment. The old one serves the connections that it has accepted,
// and continues to accept.
func TestTheOldProcessLosesNothingWhenTheNewOneIsEnded(t *testing.T) {
	t.Parallel()
	s := e2e.StartGated(t, sspsim.Options{})
	env := append(shared(t, reservePort(t)), "ADBUFFER_SERVER_DRAIN_DELAY=0s", "ADBUFFER_SERVER_IDLE_TIMEOUT=10m", "ADBUFFER_DEADLINE_DEFAULT=10m", "ADBUFFER_DEADLINE_MAX=10m")
	config := e2e.Single(s.URL())
	file := e2e.WriteConfig(t, config)
	e2e.Binary(t)
	began := time.Now()
	old := e2e.Start(t, config, env...)
	startTakes := time.Since(began)
	inFlight := old.Dial() // accepted by the old process; its request stays outstanding
	inFlight.Send(e2e.Request("GET", "/fillbuffer?n=held", ""))
	e2e.AwaitInFlight(t, s.SSP, 1)
	var kept []*e2e.Client
	for range 8 {
		c := old.Dial()
		c.Get("/nowhere").WantStatus("no route", 404)
		kept = append(kept, c)
	}
	for i := range 9 {
		next := e2e.Command(t, append(e2e.Patient(), env...), "serve", "--config", file)
		log := new(testsupport.LogBuffer)
		next.Stdout, next.Stderr = io.Discard, log
		testsupport.NoError(t, next.Start())
		// The moments range from before the process listens until after it serves.
		moment := startTakes * time.Duration(i) / 4
		if i >= 6 {
			testsupport.Eventually(t, "it serves", func() bool { _, ok := log.Line("ready"); return ok })
			moment = 0
		}
		time.Sleep(moment)
		how := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGHUP}[i%3]
		next.Process.Signal(how)
		for _, c := range kept {
			c.Get("/nowhere").WantStatus("no route", 404)
		}
		if how == syscall.SIGHUP {
			next.Process.Signal(syscall.SIGTERM)
		}
		next.Wait()
		for range 4 {
			old.Get("/nowhere").WantStatus("no route", 404) // only the old process listens
		}
		if status, _ := old.AskAdmin("/readyz"); status != 200 {
			t.Errorf("after %v to the new one the old one responds to /readyz with %d", how, status)
		}
		testsupport.MustTrue(t, !t.Failed(), "%v after %v:\n%s", how, moment, log)
	}
	s.Open()
	inFlight.Read("GET").WantFill("openx")
	old.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
}

func TestTheNewProcessServesOperators(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	env := shared(t, reservePort(t))
	old := e2e.Start(t, e2e.Single(s.URL()), env...)
	old.Get("/fillbuffer").WantFill("openx")
	old.WantMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
	next := e2e.Start(t, e2e.Single(s.URL()), env...)
	for range 10 {
		next.WantMetric(0, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
	}
	next.ExitIsTested = true
	next.Signal(syscall.SIGKILL)
	next.WantExit(-1)
	old.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=fill")
	old.WantLogged("the process that had taken over has ended; this one serves alone again")
}
