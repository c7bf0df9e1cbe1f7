package tls

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// These are the clients at the edge, with TLS and HTTP/2 by ALPN: curl, nghttp2's and net/http's.

func TestCurlSpeaksHTTP2AndHTTP1ToAdbuffer(t *testing.T) {
	t.Parallel()
	s := e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{Size: sspsim.Size{Constant: 20_000}}})
	e := e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection(", max_body_bytes: 1000")+e2e.Single(s.URL()))
	write := "%{http_version} %{http_code} %{size_download} %header{x-adbuffer-source}\n"
	for _, row := range []struct {
		options []string
		want    string
	}{
		{[]string{"--http2"}, "2 200 20000 ssp/openx\n"},
		{[]string{"--http1.1"}, "1.1 200 20000 ssp/openx\n"},
		{[]string{"--http2", "--head"}, "2 200 0 ssp/openx\n"},
		{[]string{"--http2", "--data", `{"id":"1"}`}, "2 200 20000 ssp/openx\n"},
		{[]string{"--http2", "--data", `{"id":"1"}`, "--header", "Expect: 100-continue"}, "2 200 20000 ssp/openx\n"},
		{[]string{"--http2", "--request", "DELETE"}, "2 405 "},
		{[]string{"--http2", "--data", strings.Repeat("x", 1001)}, "2 413 "},
		{[]string{"--http1.1", "--data", strings.Repeat("x", 1001)}, "1.1 413 "},
		{[]string{"--tls-max", "1.2", "--http2"}, "2 200 20000 ssp/openx\n"},
	} {
		got := curl(t, e, ab, append(row.options, "--output", os.DevNull, "--write-out", write, "EDGE/fillbuffer?pub=1")...)
		testsupport.True(t, strings.HasPrefix(got, row.want), "curl %.60v: %q, want %q", row.options, got, row.want)
	}
	// Twenty requests run at once, over one connection.
	many := []string{"--http2", "--parallel", "--parallel-max", "20", "--write-out", write}
	for range 20 {
		many = append(many, "--output", os.DevNull, "EDGE/fillbuffer")
	}
	before := ab.Scrape().Sum("adbuffer_client_tls_handshakes_by_version_total")
	testsupport.Equal(t, curl(t, e, ab, many...), strings.Repeat("2 200 20000 ssp/openx\n", 20), "20 at once: %q")
	testsupport.Equal(t, ab.Scrape().Sum("adbuffer_client_tls_handshakes_by_version_total")-before, 1, "%v connections for 20 requests")
	ab.WantMetric(0, "adbuffer_client_protocol_errors_total", "protocol=http2")
}

// curl runs curl with the given options, in which EDGE is the listener's URL, and returns its output.
func curl(t *testing.T, a *e2e.Authority, ab *e2e.Process, options ...string) string {
	t.Helper()
	edge := e2e.ListenerName + ":" + testsupport.Port(t, ab.TrafficAddr)
	args := []string{"--silent", "--show-error", "--max-time", "60", "--cacert", a.File("ca.pem"), "--resolve", edge + ":127.0.0.1"}
	for _, o := range options {
		args = append(args, strings.ReplaceAll(o, "EDGE", "https://"+edge))
	}
	return testsupport.Output(t, exec.CommandContext(t.Context(), testsupport.Needs(t, "curl", "curl"), args...))
}
