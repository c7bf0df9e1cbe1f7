package tls

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// These are the clients at the edge, with TLS and HTTP/2 by ALPN: curl, nghttp2's and net/http's.

func TestClientsSpeakTLSAndChooseTheirProtocol(t *testing.T) {
	t.Parallel()
	s, e := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection("")+e2e.Single(s.URL()))
	c := ab.DialTLS(e.ClientConfig(nil))
	for range 3 {
		c.Get("/fillbuffer").WantFill("openx")
		c.Post("/fillbuffer", `{"id":"1"}`).WantFill("openx")
	}
	ab.WantMetric(1, "adbuffer_client_tls_handshakes_total", "resumed=false")
	plain := ab.Dial()
	plain.Get("/fillbuffer").WantStatus("plain HTTP", 400)
	plain.WantClosed()
	ab.AwaitMetric(1, "adbuffer_client_tls_handshake_errors_total", "reason=invalid")

	res, err := e.HTTP2Client(t).Post("https://"+ab.TrafficAddr+"/fillbuffer?pub=1", "application/json", strings.NewReader(`{"id":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != 200 || res.Header.Get("X-Adbuffer-Source") != "ssp/openx" || len(body) == 0 {
		t.Errorf("%s %d %v %s", res.Proto, res.StatusCode, res.Header, body)
	}
	if got := e2e.LastRequest(t, s); got.Method != "POST" || string(got.Body) != `{"id":"1"}` {
		t.Errorf("the SSP got %s %s", got.Method, got.Body)
	}
}

func TestClientsWithoutARequiredCertificateAreRefused(t *testing.T) {
	t.Parallel()
	s, e := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, e.TLSSection(fmt.Sprintf(", client_ca_file: %q", e.File("ca.pem")))+e2e.Single(s.URL()))
	without := ab.DialTLS(e.ClientConfig(nil)) // with TLS 1.3 the handshake succeeds and the read fails
	if _, err := without.Reader.ReadByte(); err == nil {
		t.Error("served without a certificate")
	}
	ab.AwaitMetric(1, "adbuffer_client_tls_handshake_errors_total", "reason=certificate")
	cert, err := e.ClientCert("application")
	if err != nil {
		t.Fatal(err)
	}
	config := e.ClientConfig(nil)
	config.Certificates = []tls.Certificate{cert}
	ab.DialTLS(config).Get("/fillbuffer").WantFill("openx")
}

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
		got := e.Curl(t, ab, append(row.options, "--output", os.DevNull, "--write-out", write, "EDGE/fillbuffer?pub=1")...)
		if !strings.HasPrefix(got, row.want) {
			t.Errorf("curl %.60v: %q, want %q", row.options, got, row.want)
		}
	}
	// Twenty requests run at once, over one connection.
	many := []string{"--http2", "--parallel", "--parallel-max", "20", "--write-out", write}
	for range 20 {
		many = append(many, "--output", os.DevNull, "EDGE/fillbuffer")
	}
	before := ab.Scrape().Sum("adbuffer_client_tls_handshakes_total")
	if got := e.Curl(t, ab, many...); got != strings.Repeat("2 200 20000 ssp/openx\n", 20) {
		t.Errorf("20 at once: %q", got)
	}
	if n := ab.Scrape().Sum("adbuffer_client_tls_handshakes_total") - before; n != 1 {
		t.Errorf("%v connections for 20 requests", n)
	}
	ab.WantMetric(0, "adbuffer_client_http2_errors_total")
}

// h2load, another HTTP/2 client, has 50 streams at once on each of four connections. Every response
// arrives, and each is counted.
func TestH2loadGetsEveryResponse(t *testing.T) {
	t.Parallel()
	s, e := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection("")+e2e.Single(s.URL(), "pool: {max_pending: 1000}"))
	for _, args := range [][]string{{}, {"--data", e.File("body")}} {
		if len(args) > 0 {
			if err := os.WriteFile(args[1], []byte(e2e.BidRequest()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), testsupport.Needs(t, "nghttp2-client", "h2load"), append(args, "-n", "4000", "-c", "4", "-m", "50", "-t", "1", "https://"+ab.TrafficAddr+"/fillbuffer?pub=1")...).CombinedOutput()
		if err != nil {
			t.Fatalf("h2load: %v\n%s", err, out)
		}
		if !regexp.MustCompile(`status codes: 4000 2xx, 0 3xx, 0 4xx, 0 5xx`).Match(out) || !bytes.Contains(out, []byte("Application protocol: h2")) {
			t.Errorf("h2load says\n%s", out)
		}
	}
	ab.WantMetric(8000, "adbuffer_requests_total", "route=default", "outcome=fill")
	ab.AwaitMetric(0, "adbuffer_in_flight_requests")
	ab.AwaitMetric(0, "adbuffer_buffered_bytes")
}

func TestADrainServesAllStreamsAndExitsWith0(t *testing.T) {
	t.Parallel()
	s, e := e2e.StartGated(t, sspsim.Options{}), e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection("")+e2e.Single(s.URL()), "ADBUFFER_DEADLINE_DEFAULT=5m", "ADBUFFER_DEADLINE_MAX=10m", "ADBUFFER_SERVER_DRAIN_TIMEOUT=1m")
	clients := []*http.Client{e.HTTP2Client(t), e.HTTP2Client(t)}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			res, err := clients[i%2].Post("https://"+ab.TrafficAddr+"/fillbuffer", "application/json", strings.NewReader(`{"id":"1"}`))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || len(body) == 0 {
				t.Errorf("%v %d %s", err, res.StatusCode, body)
			}
		})
	}
	e2e.AwaitInFlight(t, s.SSP, 100)
	ab.Signal(syscall.SIGTERM)
	testsupport.Eventually(t, "the listener is closed", func() bool {
		c, err := net.Dial(ab.Network, ab.TrafficAddr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	s.Open()
	wg.Wait()
	ab.WantExit(0)
}

// During drain.delay, a client whose connection gets GOAWAY opens a new one, and no request fails.
func TestHTTP2ClientsMoveOnDuringADrain(t *testing.T) {
	t.Parallel()
	s, e := e2e.Healthy(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, e.ServerSection("")+e2e.Single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=1m")
	client := e.HTTP2Client(t)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				res, err := client.Get("https://" + ab.TrafficAddr + "/fillbuffer")
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != 200 {
					t.Errorf("status %d", res.StatusCode)
				}
			}
		})
	}
	ab.AwaitMetricAbove(10, "adbuffer_requests_total", "route=default", "outcome=fill")
	ab.Signal(syscall.SIGTERM)
	testsupport.Eventually(t, "clients have opened new connections twice", func() bool {
		return ab.Metric("adbuffer_client_tls_handshakes_total", "resumed=false")+ab.Metric("adbuffer_client_tls_handshakes_total", "resumed=true") > 3
	})
	stop()
	wg.Wait()
	ab.Signal(syscall.SIGTERM) // the second one ends the delay
	ab.WantExit(0)
}
