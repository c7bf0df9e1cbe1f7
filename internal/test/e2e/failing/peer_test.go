package failing

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// peer is a real HTTP server that acts as an SSP, in front of a backend of the test.
type peer struct {
	name     string
	graceful syscall.Signal // stops it after the requests in flight
	// command runs it on addr.
	command func(t *testing.T, dir, addr, backend string, encrypted bool) *exec.Cmd
}

var peerServers = []peer{
	{"nghttpx", syscall.SIGQUIT, func(t *testing.T, dir, addr, backend string, encrypted bool) *exec.Cmd {
		host, port, _ := net.SplitHostPort(addr)
		frontend := host + "," + port
		if !encrypted {
			frontend += ";no-tls"
		}
		backend = strings.Replace(backend, ":", ",", 1)
		return exec.Command(testsupport.Needs(t, "nghttp2-proxy", "nghttpx"), "--conf=/dev/null", "--workers=1", "--frontend="+frontend, "--backend="+backend, "--no-ocsp", "--log-level=ERROR",
			// The configuration closes connections early, and allows few streams on each.
			"--frontend-max-requests=50", "--frontend-http2-max-concurrent-streams=6", dir+"/key.pem", dir+"/cert.pem")
	}},
	{"h2o", syscall.SIGTERM, func(t *testing.T, dir, addr, backend string, encrypted bool) *exec.Cmd {
		_, port, _ := net.SplitHostPort(addr)
		ssl := ""
		if encrypted {
			ssl = fmt.Sprintf("\n  ssl: {certificate-file: %[1]s/cert.pem, key-file: %[1]s/key.pem}", dir)
		}
		user := ""
		if os.Getuid() == 0 {
			user = "user: root\n"
		}
		config := fmt.Sprintf(`%snum-threads: 1
error-log: /dev/stderr
http2-max-concurrent-requests-per-connection: 6
http1-request-timeout: 30
listen:
  host: 127.0.0.1
  port: %s%s
hosts:
  default: {paths: {"/": {proxy.reverse.url: "http://%s/", proxy.preserve-host: ON}}}
`, user, port, ssl, backend)
		file := filepath.Join(dir, "h2o.conf")
		testsupport.NoError(t, os.WriteFile(file, []byte(config), 0o600))
		return exec.Command(testsupport.Needs(t, "h2o", "h2o"), "-c", file)
	}},
}

// start runs the peer in front of the backend, and returns its URL.
func (p *peer) start(t *testing.T, a *e2e.Authority, backend string, encrypted bool) (url string, d *testsupport.Daemon) {
	t.Helper()
	addr := testsupport.FreeAddr(t)
	dir := t.TempDir()
	for _, name := range []string{"cert.pem", "key.pem"} {
		testsupport.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(e2e.ReadFile(t, a.File(name))), 0o600))
	}
	d = testsupport.StartDaemon(t, "tcp", addr, p.command(t, dir, addr, backend, encrypted))
	scheme := "http"
	if encrypted {
		scheme = "https"
	}
	return scheme + "://" + addr + "/bid", d
}

// longestPattern is made once: that costs more than to send it.
var longestPattern = sync.OnceValue(func() string {
	const most = 1 << 20
	b := make([]byte, 0, most+24)
	for i := 0; len(b) < most; i++ {
		b = fmt.Appendf(b, "%d %x|", i, i*7919)
	}
	return string(b[:most])
})

// pattern returns n bytes without repeated parts.
func pattern(n int) string { return longestPattern()[:n] }

// backend serves a peer. It responds with as many bytes as the query says, and with the checksum of
// the upload. It counts each POST's number.
type backend struct {
	addr string
	mu   sync.Mutex
	seen map[string]int // POSTs by their cb
}

func startBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{seen: map[string]int{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the peer has cancelled the request
		}
		q := r.URL.Query()
		if r.Method == "POST" {
			b.mu.Lock()
			b.seen[q.Get("cb")]++
			b.mu.Unlock()
		}
		if d, err := time.ParseDuration(q.Get("wait")); err == nil {
			time.Sleep(d)
		}
		size, _ := strconv.Atoi(q.Get("size"))
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Sum", sumOf(string(body)))
		w.Header().Set("X-Cb", q.Get("cb"))
		io.WriteString(w, pattern(size))
	}))
	t.Cleanup(s.Close)
	b.addr = s.Listener.Addr().String()
	return b
}

// twice returns the POSTs that the backend received more than once.
func (b *backend) twice() (cbs []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for cb, n := range b.seen {
		if n > 1 {
			cbs = append(cbs, cb)
		}
	}
	return cbs
}

func sumOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// peerSizes are sizes of bodies in both directions: around one frame, around the first window, and
// several frames and windows.
var peerSizes = []int{0, 1, 16383, 16385, 65536, 1 << 20}
