package failing

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// peerProtocols are the protocols between adbuffer and a peer.
var peerProtocols = []struct {
	protocol  string
	encrypted bool
}{
	{"http1", false},
	{"http1-pipelined", false},
	{"http1", true},
	{"http2", true},
	{"h2c", false},
}

// Bodies arrive unchanged in both directions. A peer that closes its connections early and allows
// few streams costs no GET.
func TestRealServersAsSSPs(t *testing.T) {
	t.Parallel()
	a, b := e2e.NewAuthority(t), startBackend(t)
	for _, p := range peerServers {
		for _, way := range peerProtocols {
			t.Run(fmt.Sprintf("%s %s TLS %v", p.name, way.protocol, way.encrypted), func(t *testing.T) {
				t.Parallel()
				url, _ := p.start(t, a, b.addr, way.encrypted)
				ab := e2e.Start(t, "server: {max_body_bytes: 1048576}\n"+e2e.Single(url, "protocol: "+way.protocol, "tls: {ca_file: "+a.File("ca.pem")+", server_name: localhost}",
					"pool: {pipeline_depth: 4, pipeline_methods: all, max_conns: 16}"))
				c := ab.Dial()
				for _, size := range peerSizes {
					target := fmt.Sprintf("/fillbuffer?size=%d&cb=%d", size, size)
					down := c.Get(target)
					up := c.Post(target+"-"+way.protocol, pattern(size))
					for _, got := range []*e2e.Response{down, up} {
						if got.WantStatus(target, 200); got.Body != pattern(size) {
							t.Errorf("%s: another body of %d bytes", target, len(got.Body))
						}
					}
					if got, want := up.Header("X-Sum"), sumOf(pattern(size)); got != want {
						t.Errorf("an upload of %d bytes arrived with changes: %s, want %s", size, got, want)
					}
				}
				ab.Concurrently(12, func(w *e2e.Worker) error {
					for i := range 25 {
						cb := fmt.Sprintf("%d-%d", w.Id, i)
						got, err := w.Exchange("GET", "/fillbuffer?size=3000&cb="+cb, "")
						if err != nil {
							return err
						}
						if got.Status != 200 || got.Header("X-Cb") != cb || got.Body != pattern(3000) {
							return fmt.Errorf("request %s: %d %v, %d bytes: %s", cb, got.Status, got.Fields, len(got.Body), testsupport.Tail(got.Body, 200))
						}
					}
					return nil
				})
			})
		}
	}
}

// A peer that gets SIGTERM completes the requests that it has received. adbuffer sends later
// requests to the other endpoint, and no request fails.
func TestRealServersThatCloseGracefully(t *testing.T) {
	t.Parallel()
	for _, p := range peerServers {
		for _, way := range peerProtocols {
			if way.protocol == "http1-pipelined" || way.protocol == "http1" && !way.encrypted {
				continue // the same as HTTP/1 over TLS
			}
			t.Run(fmt.Sprintf("%s %s TLS %v", p.name, way.protocol, way.encrypted), func(t *testing.T) {
				t.Parallel()
				a, b := e2e.NewAuthority(t), startBackend(t)
				first, ending := p.start(t, a, b.addr, way.encrypted)
				second, _ := p.start(t, a, b.addr, way.encrypted)
				ab := e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: openx, endpoints: [%q, %q], protocol: %s, tls: {ca_file: %q, server_name: localhost}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [openx]}
`, first, second, way.protocol, a.File("ca.pem")))
				var all e2e.Tally
				const clients, each = 12, 40
				ab.Concurrently(clients, func(w *e2e.Worker) error {
					for i := range each {
						if w.Id == 0 && i == each/4 {
							ending.Signal(p.graceful)
						}
						method, body := "GET", ""
						if i%4 == 0 {
							method, body = "POST", pattern(2000)
						}
						cb := fmt.Sprintf("%d-%d", w.Id, i)
						got, err := w.Exchange(method, "/fillbuffer?size=2000&wait=5ms&cb="+cb, body)
						if err != nil {
							return err
						}
						if all.AddAs(fmt.Sprintf("%s %d", method, got.Status)); got.Status == 200 && (got.Header("X-Cb") != cb || got.Body != pattern(2000)) {
							return fmt.Errorf("request %s: another response: %v", cb, got.Fields)
						}
					}
					return nil
				})
				t.Logf("%s: %v", "responses", &all)
				testsupport.Equal(t, all.Of("GET 200"), clients*each*3/4, "%d GETs got a response")
				// A POST that was sent on an HTTP/1 connection that closes may have been processed,
				// so it is not sent again.
				least := clients * each / 4
				if strings.HasPrefix(way.protocol, "http1") {
					least -= clients
				}
				if n := all.Of("POST 200"); n < least {
					t.Errorf("%d POSTs got a response, want %d", n, least)
				}
				if twice := b.twice(); len(twice) > 0 {
					t.Errorf("the backend got these POSTs twice: %v", twice)
				}
			})
		}
	}
}

// nghttpx is in front of adbuffer, as at the edge of a network.
func TestARealProxyInFront(t *testing.T) {
	t.Parallel()
	a, b := e2e.NewAuthority(t), startBackend(t)
	for n, row := range []struct{ name, params, section string }{
		{"HTTP/1.1", "", ""},
		{"HTTP/1.1 over TLS", ";;tls;proto=http/1.1;sni=localhost", a.ServerSection("")},
		{"HTTP/2 over TLS", ";;tls;proto=h2;sni=localhost", a.ServerSection("")},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ab := e2e.Start(t, row.section+e2e.Single("http://"+b.addr+"/bid"), "ADBUFFER_SERVER_MAX_BODY_BYTES=1048576")
			front := testsupport.FreeAddr(t)
			testsupport.StartDaemon(t, "tcp", front, exec.Command(testsupport.Needs(t, "nghttp2-proxy", "nghttpx"), "--conf=/dev/null", "--workers=1", "--frontend="+strings.Replace(front, ":", ",", 1)+";no-tls",
				"--backend="+strings.Replace(ab.TrafficAddr, ":", ",", 1)+row.params, "--cacert="+a.File("ca.pem"), "--log-level=ERROR"))
			through := &e2e.Process{Daemon: &testsupport.Daemon{T: t}, TrafficAddr: front, Network: "tcp"}
			through.Concurrently(8, func(w *e2e.Worker) error {
				client := &http.Client{Transport: &http.Transport{}, Timeout: testsupport.Patience}
				defer client.CloseIdleConnections()
				for i, size := range append(peerSizes, make([]int, 30)...) {
					cb := fmt.Sprintf("%d-%d-%d", n, w.Id, i)
					res, err := client.Post(fmt.Sprintf("http://%s/fillbuffer?size=%d&cb=%s", front, size, cb), "text/plain", strings.NewReader(pattern(size)))
					if err != nil {
						return err
					}
					body, err := io.ReadAll(res.Body)
					res.Body.Close()
					if err != nil {
						return err
					}
					if res.StatusCode != 200 || res.Header.Get("X-Cb") != cb || res.Header.Get("X-Sum") != sumOf(pattern(size)) || string(body) != pattern(size) {
						return fmt.Errorf("request %s of %d bytes: %s %v, %d bytes", cb, size, res.Status, res.Header, len(body))
					}
				}
				return nil
			})
			if twice := b.twice(); len(twice) > 0 {
				t.Errorf("the backend got these POSTs twice: %v", twice)
			}
		})
	}
}
