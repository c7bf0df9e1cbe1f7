package tests

import (
	"context"
	"crypto"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
	"adbuffer/loadtest/internal/rig"
)

// incident is something that goes wrong for a while, and what must name it.
type incident struct {
	name string

	ssps     int    // simulated SSPs; 0 = one
	spare    bool   // the last one has priority 1
	root     bool   // it needs root, to mount something
	endpoint string // the SSP's endpoints in YAML; "" = all simulated ones. %d is the port of the first
	keys     string // more keys of the SSP, in YAML's flow style
	server   string // more keys of server
	top      string // more sections
	wrap     string // shell text before adbuffer; $DIR is the incident's folder
	body     int    // bytes of each request; 0 = GET
	prepare  func(*scene)
	begin    func(*scene)
	end      func(*scene)

	// What names it. log, page and explain are regular expressions, "" where a source has nothing to say.
	// metric is a query with $i for the instance.
	log, metric, page, explain string
	alert                      string // the alerts that name it, "" = none may fire
	also                       string // further alerts that may fire, since they name an effect
	needs                      int    // how many sources must name it; 0 = three
	logAfter                   bool   // the log can say it only once it is over
}

// The latency of a healthy SSP, and alerts on the effects of an SSP that fails or is slow. lost is the only
// effect of a limit of adbuffer itself: no alert may blame the SSP.
const (
	incidentLatency = 20 * time.Millisecond
	lost            = "|AdbufferOwnNoAdHigh"
	effects         = lost + "|AdbufferSSPFailing"
	poolEffects     = "|AdbufferPoolTooSmall|AdbufferPoolFull|AdbufferPoolSaturated|AdbufferAcquireSlow"
)

func (s *scene) set(sim int, b sspsim.Behaviour) { s.check(s.sims[sim].Set(b)) }

// slows makes the first SSP take so long.
func slows(d time.Duration) func(*scene) { return func(s *scene) { s.set(0, steady(d)) } }

func recovers(s *scene) {
	for i := range s.sims {
		s.set(i, steady(incidentLatency))
	}
}

// calms ends a storm.
func calms(s *scene) { s.calm() }

// The sources that name an adbuffer that is down.
var down = incident{metric: "up{$i} == 0", page: "connection refused", explain: "connection refused", alert: "AdbufferInstanceDown"}

// incidents are what an operator may meet in a bad week.
var incidents = []incident{
	{name: "SSP slow", begin: slows(2 * time.Second), end: recovers,
		log: "the breaker sheds requests", metric: "adbuffer_breaker_shed_ratio{$i} > 0", page: "the breaker sheds requests",
		explain: "the breaker sheds requests", alert: "AdbufferBreakerOpen", also: effects + poolEffects},
	{name: "one of three endpoints dead", ssps: 3, end: recovers,
		begin: func(s *scene) {
			s.set(1, sspsim.Behaviour{Faults: sspsim.Faults{Refuse: true, Reset: sspsim.Always}})
			s.sims[1].CloseConnections()
		},
		log: "no connection to an endpoint can be opened", metric: "rate(adbuffer_pool_dial_errors_total{$i}[15s]) > 0",
		page: "no connection to an endpoint can be opened", explain: "no connection to an endpoint can be opened",
		alert: "AdbufferDialErrors|AdbufferEndpointEjected"},
	{name: "all primaries fail", ssps: 3, spare: true, end: recovers, keys: ", breaker: {enabled: false}",
		begin: func(s *scene) {
			s.set(0, responds500)
			s.set(1, responds500)
		},
		log: "an endpoint fails and gets no requests", metric: `adbuffer_endpoint_state{$i,state="ejected"} > 0`,
		page: `"state": ?"ejected"`, explain: "ejected for", alert: "AdbufferEndpointEjected", also: effects},
	{name: "certificate expired", endpoint: `"https://localhost:%d/bid"`, keys: ", pool: {max_age: 2s}, tls: {ca_file: $DIR/ca.pem}",
		prepare: (*scene).serveTLS,
		begin:   func(s *scene) { s.expires.current.Store(&s.expires.expired) },
		end:     func(s *scene) { s.expires.current.Store(&s.expires.good) },
		log:     "no connection to an endpoint can be opened.*certificate has expired", metric: `rate(adbuffer_tls_handshake_errors_total{$i,reason="certificate"}[15s]) > 0`,
		page: "certificate has expired", explain: "certificate has expired", alert: "AdbufferDialErrors", also: effects + "|AdbufferBreakerOpen"},
	// Results of look-ups count for 20 s. So the names go 8 s before the next look-up.
	{name: "DNS gone", root: true, endpoint: `"http://ssp.incident.test:%d/bid"`, keys: ", pool: {max_age: 2s}",
		wrap: `exec unshare -m sh -c 'mount --bind $DIR/hosts /etc/hosts && mount --bind $DIR/resolv.conf /etc/resolv.conf && exec "$@"' sh `,
		prepare: func(s *scene) {
			s.hosts("127.0.0.1 ssp.incident.test\n")
			s.write("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
		},
		begin: func(s *scene) {
			s.awaitLookup()
			s.hosts("")
		},
		end: func(s *scene) { s.hosts("127.0.0.1 ssp.incident.test\n") },
		log: "cannot be looked up", metric: "adbuffer_dns_failing_names{$i} > 0", page: "cannot be looked up", explain: "cannot be looked up",
		alert: "AdbufferDNSFailing", also: effects + "|AdbufferDialErrors|AdbufferBreakerOpen"},
	{name: "pool too small", keys: ", pool: {max_conns: 6, max_pending: 4}", begin: slows(200 * time.Millisecond), end: recovers,
		log: "requests found no place", metric: `rate(adbuffer_ssp_requests_total{$i,outcome=~"pending_.*"}[15s]) > 0`,
		page: "requests found no place", explain: "requests found no place", alert: "AdbufferPendingFull|AdbufferPoolTooSmall", also: lost + poolEffects},
	{name: "client storm", server: ", max_connections: 60", begin: (*scene).storm, end: calms,
		log: `limit of the service was reached.*server\.max_connections`, metric: "adbuffer_client_connections{$i} / adbuffer_client_connections_limit > 0.9",
		alert: "AdbufferClientsNearLimit|AdbufferLimitReached", also: lost},
	{name: "256 open files", wrap: "ulimit -n 256; exec ", begin: (*scene).storm, end: calms,
		log: `limit of the service was reached.*ulimit -n`, metric: "adbuffer_client_connections{$i} / adbuffer_client_connections_limit > 0.9",
		alert: "AdbufferClientsNearLimit|AdbufferLimitReached|AdbufferFilesLow", also: lost},
	{name: "log disk full", root: true, top: "log: {access: {enabled: true, sample: 1}}", prepare: (*scene).mountDisk, wrap: "exec 2>>$DIR/disk/log; exec ",
		begin: (*scene).fillDisk, end: func(s *scene) { s.check(os.Remove(s.dir + "/disk/fill")) },
		log: "log lines were lost", logAfter: true, metric: "rate(adbuffer_log_dropped_total{$i}[15s]) > 0", alert: "AdbufferLogLinesDropped"},
	{name: "memory short", server: ", max_buffered_bytes: 262144", keys: ", max_buffered_bytes: 1000000, max_response_bytes: 100000", top: "deadline: {default: 1s}", body: 20000,
		begin: slows(800 * time.Millisecond), end: recovers,
		log: `limit of the service was reached.*server\.max_buffered_bytes`, metric: `rate(adbuffer_limit_refused_total{$i,limit="max_buffered_bytes"}[15s]) > 0`,
		alert: "AdbufferLimitReached|AdbufferMemoryNearLimit", also: lost},
	{name: "broken reload", begin: func(s *scene) { s.write("adbuffer.yaml", s.config+"\nno_such_section: 1\n") },
		end: func(s *scene) { s.write("adbuffer.yaml", s.config) },
		log: "no_such_section", metric: "adbuffer_config_last_reload_successful{$i} == 0", page: "differs from its file", alert: "AdbufferConfigReloadFailed"},
	{name: "SIGTERM", begin: func(s *scene) { s.check(s.adbuffer.Signal(syscall.SIGTERM)) }, end: (*scene).startAdbuffer,
		log: `"msg":"draining"`, metric: down.metric, page: down.page, explain: down.explain, alert: down.alert},
	{name: "kill -9", begin: func(s *scene) { s.check(s.adbuffer.Signal(syscall.SIGKILL)) }, end: (*scene).startAdbuffer,
		metric: down.metric, page: down.page, explain: down.explain, alert: down.alert},
	{name: "hand-over", server: ", reuse_port: true", needs: 1, end: func(*scene) {},
		begin: func(s *scene) {
			before := s.adbuffer
			s.startAdbuffer()
			s.check(before.Signal(syscall.SIGTERM))
		},
		log: "another process has taken over"},
	{name: "overload", top: "deadline: {default: 1s}", begin: (*scene).starve, end: calms,
		log: `limit of the service was reached.*server\.overload`, metric: `rate(adbuffer_overload_refused_total{$i}[15s]) > 0`, page: `"overloaded":\s*true`,
		explain: "adbuffer is overloaded", alert: "AdbufferOverloaded", also: lost},
}

// write writes a file of the incident in place, since others may have bound it.
func (s *scene) write(name, text string) {
	s.check(os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644))
}

func (s *scene) hosts(text string) { s.write("hosts", "127.0.0.1 localhost\n"+text) }

// awaitLookup waits for a look-up, and for the 12 s after it.
func (s *scene) awaitLookup() {
	count := func() string {
		_, text, _ := strings.Cut(s.get("/metrics"), `adbuffer_dns_lookups_total{result="good"`)
		text, _, _ = strings.Cut(text, "\n")
		return text
	}
	first := count()
	s.adbuffer.Await(25*time.Second, "look up a name", func() bool { return count() != first })
	time.Sleep(12 * time.Second)
}

// expiring serves with a certificate that ends at a moment of choice.
type expiring struct {
	good, expired tls.Certificate
	current       atomic.Pointer[tls.Certificate]
}

// serveTLS starts an SSP in the place of the simulated one.
func (s *scene) serveTLS() {
	x := &expiring{good: testsupport.Certificate("localhost")}
	x.expired = testsupport.CertificateUntil(time.Now().Add(-time.Hour), x.good.PrivateKey.(crypto.Signer), "localhost")
	x.current.Store(&x.good)
	s.expires = x
	authority := ""
	for _, c := range []tls.Certificate{x.good, x.expired} {
		authority += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
	}
	s.write("ca.pem", authority)
	// A resumed session would not show the certificate.
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return x.current.Load(), nil }})
	s.check(err)
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "an ad") })}
	go func() { _ = server.Serve(l) }()
	s.port = l.Addr().(*net.TCPAddr).Port
}

// storm opens connections that are idle or unfinished, again and again.
func (s *scene) storm() {
	ctx, stop := context.WithCancel(s.e.Ctx)
	s.calm = stop
	go func() {
		var open []net.Conn
		for ; ctx.Err() == nil; rig.Sleep(ctx, 20*time.Millisecond) {
			if c, err := net.Dial("tcp", s.addr); err == nil {
				open = append(open, c)
			}
			if len(open) > 150 {
				open[0].Close()
				open = open[1:]
			}
		}
		for _, c := range open {
			c.Close()
		}
	}()
}

// starve takes most of the CPU from adbuffer, as a much too small CPU limit does: it runs for 4 of 64 ms.
func (s *scene) starve() {
	ctx, stop := context.WithCancel(s.e.Ctx)
	s.calm = stop
	p := s.adbuffer
	go func() {
		for ctx.Err() == nil {
			_ = p.Signal(syscall.SIGSTOP)
			time.Sleep(60 * time.Millisecond)
			_ = p.Signal(syscall.SIGCONT)
			time.Sleep(4 * time.Millisecond)
		}
	}()
}

// mountDisk mounts a small disk for the log.
func (s *scene) mountDisk() {
	disk := s.dir + "/disk"
	s.check(os.Mkdir(disk, 0o755))
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk).CombinedOutput(); err != nil {
		s.check(fmt.Errorf("mount: %w: %s", err, out))
	}
	s.unmount = func() { _ = exec.Command("umount", "-l", disk).Run() } // the folder goes too
	s.logFile = disk + "/log"
}

// fillDisk writes until the disk is full.
func (s *scene) fillDisk() {
	f, err := os.Create(s.dir + "/disk/fill")
	s.check(err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
}
