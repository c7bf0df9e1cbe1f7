package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"adbuffer/internal/sspsim"
)

// What clients at the edge see: TLS, and HTTP/2 by ALPN, with the clients that
// they use: curl, nghttp2's, net/http's.

// edge is the certificate of a listener, in files, and who trusts it.
type edge struct {
	certFile, keyFile string
	roots             *x509.CertPool
	certificate       tls.Certificate // the same, for clients that must have one
}

const edgeName = "adbuffer.test"

// newEdge makes a certificate for edgeName and 127.0.0.1, which is its own
// authority.
func newEdge(t testing.TB) *edge {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: edgeName}, DNSNames: []string{edgeName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{certFile: filepath.Join(t.TempDir(), "cert.pem"), keyFile: filepath.Join(t.TempDir(), "key.pem"), roots: x509.NewCertPool()}
	for file, block := range map[string]*pem.Block{e.certFile: {Type: "CERTIFICATE", Bytes: der}, e.keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	e.roots.AddCert(leaf)
	e.certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	return e
}

// server is the configuration's section, with more settings of it.
func (e *edge) server(more string) string {
	return fmt.Sprintf("server: {tls: {cert_file: %q, key_file: %q}%s}\n", e.certFile, e.keyFile, more)
}

// dialTLS is dial, over TLS.
func (ab *adbuffer) dialTLS(config *tls.Config) *client {
	ab.t.Helper()
	c := ab.dial()
	tc := tls.Client(c.c, config)
	if err := tc.Handshake(); err != nil {
		ab.t.Fatalf("handshake: %v", err)
	}
	c.c = tc
	c.r.Reset(tc)
	return c
}

func (e *edge) config(protocols ...string) *tls.Config {
	return &tls.Config{RootCAs: e.roots, ServerName: edgeName, NextProtos: protocols}
}

// http2 is net/http's client, with HTTP/2 alone and a connection of its own.
func (e *edge) http2(t testing.TB) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: e.config(), Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func TestClientsSpeakTLSAndChooseTheirProtocol(t *testing.T) {
	t.Parallel()
	s, e := healthy(t), newEdge(t)
	ab := start(t, e.server("")+single(s.URL()))
	c := ab.dialTLS(e.config())
	for range 3 {
		c.get("/fillbuffer").wantFill("openx")
		c.post("/fillbuffer", `{"id":"1"}`).wantFill("openx")
	}
	ab.wantMetric(1, "adbuffer_client_tls_handshakes_total", "resumed=false")
	plain := ab.dial()
	plain.get("/fillbuffer").wantStatus("plain HTTP", 400)
	plain.wantClosed()
	ab.awaitMetric(1, "adbuffer_client_tls_handshake_errors_total", "reason=invalid")

	res, err := e.http2(t).Post("https://"+ab.traffic+"/fillbuffer?pub=1", "application/json", strings.NewReader(`{"id":"1"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close() //nolint:errcheck // it was read
	if res.ProtoMajor != 2 || res.StatusCode != 200 || res.Header.Get("X-Adbuffer-Source") != "ssp/openx" || len(body) == 0 {
		t.Errorf("%s %d %v %s", res.Proto, res.StatusCode, res.Header, body)
	}
	if got := lastRequest(t, s); got.Method != "POST" || string(got.Body) != `{"id":"1"}` {
		t.Errorf("the SSP was sent %s %s", got.Method, got.Body)
	}
}

func TestClientsWithoutACertificateAreRefusedWhereOneIsAskedFor(t *testing.T) {
	t.Parallel()
	s, e := healthy(t), newEdge(t)
	ab := start(t, fmt.Sprintf("server: {tls: {cert_file: %q, key_file: %q, client_ca_file: %q}}\n", e.certFile, e.keyFile, e.certFile)+single(s.URL()))
	without := ab.dialTLS(e.config()) // TLS 1.3 tells only when it is read
	if _, err := without.r.ReadByte(); err == nil {
		t.Error("served without a certificate")
	}
	ab.awaitMetric(1, "adbuffer_client_tls_handshake_errors_total", "reason=invalid")
	config := e.config()
	config.Certificates = []tls.Certificate{e.certificate}
	ab.dialTLS(config).get("/fillbuffer").wantFill("openx")
}

// curl asks with the given options, and returns its standard output.
func (e *edge) curl(t *testing.T, ab *adbuffer, options ...string) string {
	t.Helper()
	port := ab.traffic[strings.LastIndexByte(ab.traffic, ':')+1:]
	args := append([]string{"--silent", "--show-error", "--max-time", "60", "--cacert", e.certFile, "--resolve", edgeName + ":" + port + ":127.0.0.1"}, options...)
	for i, a := range args {
		args[i] = strings.ReplaceAll(a, "EDGE", "https://"+edgeName+":"+port)
	}
	var complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "curl", args...)
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("curl: %v: %s", err, &complaints)
	}
	return string(out)
}

func TestCurlSpeaksHTTP2AndHTTP1ToAdbuffer(t *testing.T) {
	t.Parallel()
	s := sspWith(t, sspsim.Behaviour{Answer: sspsim.Answer{Size: sspsim.Size{Constant: 20_000}}})
	e := newEdge(t)
	ab := start(t, e.server(", max_body_bytes: 1000")+single(s.URL()))
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
		got := e.curl(t, ab, append(row.options, "--output", os.DevNull, "--write-out", write, "EDGE/fillbuffer?pub=1")...)
		if !strings.HasPrefix(got, row.want) {
			t.Errorf("curl %.60v: %q, want %q", row.options, got, row.want)
		}
	}
	// Twenty at once, over one connection.
	many := []string{"--http2", "--parallel", "--parallel-max", "20", "--write-out", write}
	for range 20 {
		many = append(many, "--output", os.DevNull, "EDGE/fillbuffer")
	}
	before := ab.metric("adbuffer_client_tls_handshakes_total", "resumed=false")
	if got := e.curl(t, ab, many...); got != strings.Repeat("2 200 20000 ssp/openx\n", 20) {
		t.Errorf("20 at once: %q", got)
	}
	if n := ab.metric("adbuffer_client_tls_handshakes_total", "resumed=false") - before; n < 1 || n > 20 {
		t.Errorf("%v connections for 20 requests", n)
	}
	ab.wantMetric(0, "adbuffer_client_http2_errors_total")
}

// An independent client of HTTP/2, with 50 streams at once on each of four
// connections: every answer arrives, and each is counted.
func TestH2loadGetsEveryAnswer(t *testing.T) {
	t.Parallel()
	s, e := healthy(t), newEdge(t)
	ab := start(t, e.server("")+single(s.URL(), "pool: {max_pending: 1000}"))
	for _, args := range [][]string{{}, {"--data", filepath.Join(filepath.Dir(e.certFile), "body")}} {
		if len(args) > 0 {
			if err := os.WriteFile(args[1], []byte(bidRequest(t)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		out, err := exec.CommandContext(t.Context(), "h2load", append(args, "-n", "4000", "-c", "4", "-m", "50", "-t", "1", "https://"+ab.traffic+"/fillbuffer?pub=1")...).CombinedOutput()
		if err != nil {
			t.Fatalf("h2load: %v\n%s", err, out)
		}
		if !regexp.MustCompile(`status codes: 4000 2xx, 0 3xx, 0 4xx, 0 5xx`).Match(out) || !bytes.Contains(out, []byte("Application protocol: h2")) {
			t.Errorf("h2load says\n%s", out)
		}
	}
	ab.wantMetric(8000, "adbuffer_requests_total", "route=default", "outcome=fill")
	ab.wantMetric(0, "adbuffer_in_flight_requests")
	ab.wantMetric(0, "adbuffer_buffered_bytes")
}

func TestADrainAnswersAllStreamsAndExitsWith0(t *testing.T) {
	t.Parallel()
	s, e := startGated(t, sspsim.Options{}), newEdge(t)
	ab := start(t, e.server("")+single(s.URL()))
	clients := []*http.Client{e.http2(t), e.http2(t)}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			res, err := clients[i%2].Post("https://"+ab.traffic+"/fillbuffer", "application/json", strings.NewReader(`{"id":"1"}`))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close() //nolint:errcheck // it was read
			if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != 200 || len(body) == 0 {
				t.Errorf("%v %d %s", err, res.StatusCode, body)
			}
		})
	}
	awaitInFlight(t, s.SSP, 100)
	ab.signal(syscall.SIGTERM)
	eventually(t, "nobody listens", func() bool {
		c, err := net.Dial(ab.network, ab.traffic)
		if err == nil {
			c.Close() //nolint:errcheck // it was only to see
		}
		return err != nil
	})
	s.open()
	wg.Wait()
	ab.wantExit(0)
}

// Requests that a draining service does not take over an old connection come to
// their answer over a new one: no request fails while there is a delay.
func TestHTTP2ClientsMoveOnDuringADrain(t *testing.T) {
	t.Parallel()
	s, e := healthy(t), newEdge(t)
	ab := start(t, e.server("")+single(s.URL()), "ADBUFFER_SERVER_DRAIN_DELAY=5s")
	client := e.http2(t)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				res, err := client.Get("https://" + ab.traffic + "/fillbuffer")
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, res.Body) //nolint:errcheck // the status is what matters
				res.Body.Close()              //nolint:errcheck // it was read
				if res.StatusCode != 200 {
					t.Errorf("status %d", res.StatusCode)
				}
			}
		})
	}
	ab.awaitMetricAbove(10, "adbuffer_requests_total", "route=default", "outcome=fill")
	ab.signal(syscall.SIGTERM)
	eventually(t, "clients have moved on twice", func() bool {
		return ab.metric("adbuffer_client_tls_handshakes_total", "resumed=false")+ab.metric("adbuffer_client_tls_handshakes_total", "resumed=true") > 3
	})
	stop()
	wg.Wait()
	ab.wantExit(0)
}
