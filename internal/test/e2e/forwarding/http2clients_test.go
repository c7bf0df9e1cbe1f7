package forwarding

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// echoSSP responds with the request's body.
func echoSSP(t *testing.T) *httptest.Server {
	ssp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(append([]byte("echo"), body...))
	}))
	t.Cleanup(ssp.Close)
	return ssp
}

const largeBodies = "max_body_bytes: 2097152, max_in_flight: 4000, max_buffered_bytes: 1073741824"

func startForHTTP2Clients(t *testing.T) *e2e.Process {
	return e2e.Start(t, "server: {h2c: true, "+largeBodies+"}\n"+
		e2e.Single(echoSSP(t).URL+"/", "max_response_bytes: 4194304\n    max_buffered_bytes: 1073741824\n    pool: {max_pending: 4000}"))
}

// net/http sends bodies of 0 bytes to 1 MiB on 1 to 250 streams at once, with a stated length and
// without. Each request gets its own response.
func TestNetHTTPOverHTTP2(t *testing.T) {
	t.Parallel()
	ab := startForHTTP2Clients(t)
	for _, row := range []struct{ streams, size int }{{1, 0}, {1, 1}, {8, 16 << 10}, {250, 1000}, {16, 70_000}, {4, 1 << 20}} {
		transport := &http.Transport{Protocols: unencryptedHTTP2()}
		defer transport.CloseIdleConnections()
		var wg sync.WaitGroup
		for i := range row.streams {
			wg.Go(func() {
				body := bytes.Repeat([]byte{byte('a' + i%26)}, row.size)
				var r io.Reader = bytes.NewReader(body)
				if i%2 == 1 {
					r = io.MultiReader(r) // its length is not stated
				}
				req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+ab.TrafficAddr+"/fillbuffer", r)
				if err != nil {
					t.Error(err)
					return
				}
				if i%3 == 1 {
					req.Trailer = http.Header{"X-Trailing": {"1"}}
				}
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Errorf("%+v: %v", row, err)
					return
				}
				defer res.Body.Close()
				got, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != 200 || string(got) != "echo"+string(body) {
					t.Errorf("%+v: status %d, %d bytes, %v", row, res.StatusCode, len(got), err)
				}
			})
		}
		wg.Wait()
	}
}

// curl, nghttp and h2load speak HTTP/2 with the codec and flow control of nghttp2.
func TestOtherClientsOverHTTP2(t *testing.T) {
	t.Parallel()
	ab := startForHTTP2Clients(t)
	url := "http://" + ab.TrafficAddr + "/fillbuffer"
	dir := t.TempDir()
	testsupport.Needs(t, "nghttp2-client", "nghttp")
	run := func(name string, args ...string) string {
		t.Helper()
		return testsupport.Output(t, exec.CommandContext(t.Context(), name, args...))
	}
	for _, size := range []int{1, 65536, 1 << 20} {
		file := filepath.Join(dir, fmt.Sprint(size))
		body := strings.Repeat("x", size)
		testsupport.NoError(t, os.WriteFile(file, []byte(body), 0o600))
		if got := run("curl", "-sS", "--fail", "--http2-prior-knowledge", "--data-binary", "@"+file, url); got != "echo"+body {
			t.Errorf("curl with %d bytes: got %d", size, len(got))
		}
		if got := run("nghttp", "-d", file, "--trailer", "x-t: 1", url); got != "echo"+body {
			t.Errorf("nghttp with %d bytes: got %d", size, len(got))
		}
		for _, load := range [][]string{{"-n100", "-c4", "-m1"}, {"-n400", "-c2", "-m100", "-w14", "-W14"}, {"-n500", "-c1", "-m250"}} {
			if size > 1 {
				load[0] = fmt.Sprintf("-n%d", 8+(2<<20)/size)
			}
			out := run("h2load", append(load, "-d", file, url)...)
			if !regexp.MustCompile(` 0 failed, 0 errored`).MatchString(out) || !strings.Contains(out, " 0 4xx, 0 5xx") {
				t.Errorf("h2load %v with %d bytes:\n%s", load, size, out)
			}
		}
	}
	if got := run("curl", "-sS", "--http2-prior-knowledge", "-I", url); !strings.HasPrefix(got, "HTTP/2 200") {
		t.Errorf("curl -I: %q", got)
	}
}
