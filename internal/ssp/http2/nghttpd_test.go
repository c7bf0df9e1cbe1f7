package http2

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// nghttpdSizes are body sizes in both directions: around one frame, around the first window, and
// several frames and windows.
var nghttpdSizes = []int{0, 1, 16383, 16385, 65536, 1 << 18}

// largestNghttpdBody is the largest file. All its parts differ, so tests detect lost, repeated or
// misplaced DATA.
var largestNghttpdBody = sync.OnceValue(func() string {
	var b []byte
	for i := 0; len(b) < 1<<18; i++ {
		b = fmt.Appendf(b, "%d %x|", i, i*7919)
	}
	return string(b)
})

// nghttpdBody returns the file of that size, which tests also upload.
func nghttpdBody(size int) string { return largestNghttpdBody()[:size] }

// startNghttpd runs the server of the nghttp2 project with these options, and returns its address.
// It responds to a GET of /N with a body of N bytes, and to an upload with the uploaded body. The
// Debian package nghttp2-server is needed.
func startNghttpd(t testing.TB, options ...string) string {
	t.Helper()
	dir := t.TempDir()
	testsupport.WriteCertificate(t, testsupport.Certificate("ssp.example"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	for _, size := range nghttpdSizes {
		testsupport.NoError(t, os.WriteFile(filepath.Join(dir, itoa(size)), []byte(nghttpdBody(size)), 0o600))
	}
	addr := testsupport.FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	testsupport.NoError(t, err)
	args := append([]string{"-a", "127.0.0.1", "-d", dir, "--echo-upload"}, options...)
	args = append(args, port, filepath.Join(dir, "key.pem"), filepath.Join(dir, "cert.pem"))
	testsupport.StartDaemon(t, "tcp", addr, exec.Command(testsupport.Needs(t, "nghttp2-server", "nghttpd"), args...))
	return addr
}

// nghttpdPeers are options of nghttpd that are difficult for clients.
var nghttpdPeers = []struct {
	name    string
	options []string
}{
	{"default options", nil},
	{"cleartext", []string{"--no-tls"}},
	{"small windows", []string{"-w", "10"}},                  // 1023 bytes of each upload at a time
	{"large windows", []string{"-w", "24", "-W", "26"}},      // wider than a body needs
	{"padding", []string{"-b", "255"}},                       // in each frame that nghttpd sends
	{"no header table", []string{"--header-table-size=0"}},   // for adbuffer's requests
	{"its own table", []string{"--header-table-size=65536"}}, // larger than the default
	{"no table of its own", []string{"--encoder-header-table-size=0"}},
	{"responds early", []string{"--early-response"}},
	{"trailers", []string{"--trailer", "x-checksum: abc", "--trailer", "x-second: 2"}},
	{"no content-length", []string{"--no-content-length"}},
	{"pushes", []string{"-p", "/1=/16383,/0", "-p", "/0=/1"}}, // adbuffer's settings forbid them
	{"two threads", []string{"-n", "2"}},
	{"padding and small windows", []string{"-b", "100", "-w", "13", "--trailer", "x-checksum: abc"}},
}

func dialNghttpd(t testing.TB, addr string, cleartext bool) net.Conn {
	t.Helper()
	if cleartext {
		c, err := net.Dial("tcp", addr)
		testsupport.NoError(t, err)
		return c
	}
	c := dialTLS(t, addr)
	testsupport.MustEqual(t, c.(*tls.Conn).ConnectionState().NegotiatedProtocol, "h2", "nghttpd negotiated %q")
	return c
}

// greet waits for one response; after it the peer's settings are known. An earlier body uses the
// first window of RFC 9113, 65 535 bytes. A peer with a smaller window may reset that stream with
// FLOW_CONTROL_ERROR (section 6.9.3), and nghttpd does.
func greet(t *testing.T, conn *Conn) {
	t.Helper()
	get("/1").do(conn).wantBody(t, nghttpdBody(1))
}

// wantNghttpdExchanges runs each method with each size, all at the same time, on
// conn, and compares each body byte for byte.
func wantNghttpdExchanges(t *testing.T, conn *Conn, lengths bool, sizes []int) {
	t.Helper()
	var all sync.WaitGroup
	for _, size := range sizes {
		target, body := "/"+itoa(size), nghttpdBody(size)
		for _, r := range []request{get(target), {method: exchange.HEAD, target: target}, post(target, body)} {
			all.Go(func() {
				want := body
				if r.method == exchange.HEAD {
					want = ""
				}
				got := r.do(conn)
				if got.err != nil || got.status != 200 || got.body != want {
					t.Errorf("%v %s: %v, status %d, %d bytes %.30q; want 200 and %d bytes %.30q", r.method, target, got.err, got.status, len(got.body), got.body, len(want), want)
				}
				if lengths && r.method != exchange.POST && got.length != size {
					t.Errorf("%v %s: content-length %d, want %d", r.method, target, got.length, size)
				}
			})
		}
	}
	all.Wait()
	testsupport.Equal(t, conn.CloseReason(), exchange.NotClosed, "the connection was closed: %v")
}

func TestNghttpdExchangesBodiesOfAnySize(t *testing.T) {
	for _, peer := range nghttpdPeers {
		t.Run(peer.name, func(t *testing.T) {
			t.Parallel()
			lengths := peer.name != "no content-length"
			conn, o := open(t, dialNghttpd(t, startNghttpd(t, peer.options...), peer.name == "cleartext"), testOptions())
			greet(t, conn)
			wantNghttpdExchanges(t, conn, lengths, nghttpdSizes)     // with empty tables
			wantNghttpdExchanges(t, conn, lengths, nghttpdSizes[:5]) // with full ones, without the largest body
			n, want := int(o.freed.Load()), 1+3*6+3*5
			testsupport.Equal(t, n, want, "%d places were freed")
		})
	}
}

// An upload may fail if it begins before adbuffer knows that the peer's window is small. All other
// exchanges and the connection continue.
func TestNghttpdWithSmallWindowsFailsOnlyUploadsBeforeItsSettings(t *testing.T) {
	addr := startNghttpd(t, "-w", "6")
	for range 3 {
		conn, _ := open(t, dialTLS(t, addr), testOptions())
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				if i%2 == 0 {
					got := get("/16385").do(conn)
					testsupport.True(t, got.err == nil && got.body == nghttpdBody(16385), "a GET beside uploads: %v, %d bytes", got.err, len(got.body))
					return
				}
				body := nghttpdBody(20000 + i)
				switch got := post("/", body).do(conn); {
				case got.err != nil && !strings.Contains(got.err.Error(), "FLOW_CONTROL_ERROR"), got.err == nil && got.body != body:
					t.Errorf("an upload: %v, %d bytes of %d", got.err, len(got.body), len(body))
				}
			})
		}
		all.Wait()
		post("/", nghttpdBody(20000)).do(conn).wantBody(t, nghttpdBody(20000))
		testsupport.Equal(t, conn.CloseReason(), exchange.NotClosed, "the connection was closed: %v")
	}
}

// nghttpd allows one stream. It refuses more until adbuffer has read its settings; refused requests
// were not processed and are sent again. After that adbuffer keeps to the limit.
func TestNghttpdThatAllowsOneStreamIsAskedForOneAtATime(t *testing.T) {
	conn, _ := open(t, dialTLS(t, startNghttpd(t, "-m", "1")), testOptions())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				body := nghttpdBody(1000 + i)
				got := post("/", body).do(conn)
				switch {
				case got.err == nil && got.body == body:
					return
				case got.err == nil || exchange.AsError(got.err).Progress == exchange.MaybeProcessed || time.Now().After(end):
					t.Errorf("%v, %d, %d bytes of %d", got.err, got.status, len(got.body), len(body))
					return
				}
			}
		})
	}
	all.Wait()
	testsupport.Equal(t, conn.Places(), 1, "%d places")
	// If requests are sent one at a time, nghttpd refuses none.
	for _, size := range nghttpdSizes {
		post("/", nghttpdBody(size)).do(conn).wantBody(t, nghttpdBody(size))
	}
}
