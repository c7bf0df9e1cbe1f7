package probe

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// options are the command's defaults, with a timeout for slow machines.
func options(url string, roots *x509.CertPool) Options {
	return Options{URL: url, Conns: 4, Requests: 50, Timeout: testsupport.Patience, Authorities: roots}
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	testsupport.NoError(t, err)
	testsupport.True(t, r.Requests <= o.Requests && len(r.Addresses) != 0 && r.Addresses[0].Connect > 0, "%+v", r)
	// The YAML is a configuration, once a route uses it.
	text := r.YAML()
	_, _, err = config.Parse([]byte(text+"routes: [{name: r, match: {path: /}, ssps: ["+r.name()+"]}]\n"), nil)
	testsupport.True(t, err == nil, "%v\n%s", err, text)
	return r
}

func wantYAML(t *testing.T, r *Report, want string) {
	t.Helper()
	for i := range r.Addresses {
		r.Addresses[i].Connect, r.Addresses[i].Handshake = 0, 0 // a slow machine takes so long that the YAML has timeouts
	}
	testsupport.Equal(t, r.YAML(), strings.ReplaceAll(want, "URL", r.URL), "the YAML is\n%s\nwant\n%s", want)
}

// The YAML has a timeout where three times the measured one exceeds the default, rounded up to 50 ms, and only
// limits below the defaults.
func TestTheYAMLHasOnlyWhatTheDefaultsDoNotSuit(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		connect, handshake, idle time.Duration
		streams                  uint32
		want                     string
	}{
		"all at the defaults": {83333333, 166666666, time.Minute, 100, ""},
		"a connect of 84 ms":  {84 * ms, 0, 0, 0, "    timeouts:\n      connect: 300ms\n"},
		"a connect of 100 ms": {100 * ms, 0, 0, 0, "    timeouts:\n      connect: 300ms\n"},
		"a connect of 101 ms": {101 * ms, 0, 0, 0, "    timeouts:\n      connect: 350ms\n"},
		"a handshake":         {0, 167 * ms, 0, 0, "    timeouts:\n      tls_handshake: 550ms\n"},
		"a short idle limit":  {0, 0, 30 * time.Second, 0, "    pool:\n      idle_timeout: 28s\n"},
		"few streams":         {0, 0, 0, 99, "    pool:\n      max_streams_per_conn: 99\n"},
	} {
		r := &Report{URL: "https://rtb.example/bid", HTTP1: &ProtocolFacts{Announced: c.idle}, HTTP2: &HTTP2Facts{Streams: c.streams}}
		r.Addresses = []Address{{Connect: c.connect}, {Connect: ms, Handshake: c.handshake}}
		want := "ssps:\n  - name: rtb-example\n    endpoints:\n      - https://rtb.example/bid\n" + c.want
		testsupport.Equal(t, r.YAML(), want, "%[2]s: the YAML is %[1]q", name)
	}
}

func TestAProbeOfNginx(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), testsupport.FreeAddr(t)
	ca, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	cert, err := ca.ServerCert("127.0.0.1")
	if err == nil {
		err = sspsim.WriteKeyPair(cert, dir+"/cert.pem", dir+"/key.pem")
	}
	testsupport.NoError(t, err)
	testsupport.StartNginx(t, dir, addr, fmt.Sprintf(`
	access_log off;
	keepalive_requests 8;
	keepalive_timeout 2s;
	http2_max_concurrent_streams 32;
	gzip on; gzip_types application/json; gzip_min_length 1;
	server {
		listen %s ssl http2;
		ssl_protocols TLSv1.2 TLSv1.3;
		ssl_certificate cert.pem;
		ssl_certificate_key key.pem;
		location / { return 200 '{"id":"1","seatbid":[],"nbr":0,"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}'; }
	}`, addr))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	o := options("https://"+addr+"/bid?key=s3cret", roots)
	o.Idle, o.Pipelining = testsupport.Patience, true
	r := run(t, o)
	if !slices.Equal(r.TLSVersions, []string{"1.2", "1.3"}) || r.ALPN != "h2" || r.Addresses[0].Handshake <= 0 {
		t.Errorf("TLS %v, ALPN %s, %+v", r.TLSVersions, r.ALPN, r.Addresses)
	}
	if f := r.HTTP1; f == nil || f.Served != 8 || !f.Closed || f.IdleLimit < time.Second || f.First <= 0 || f.Median <= 0 {
		t.Errorf("HTTP/1.1: %+v", f)
	}
	if f := r.HTTP2; f == nil || f.Served != 8 || !f.Closed || f.Streams != 32 || f.IdleLimit < time.Second {
		t.Errorf("HTTP/2: %+v", f)
	}
	if r.Pipelines == nil || !*r.Pipelines || !r.GzipResponse || r.GzipRequest != nil || !slices.Equal(r.NoBids, []NoBid{OpenRTB}) || r.Fills != 0 || len(r.Errors) > 0 {
		t.Errorf("%+v", r)
	}
	wants := []string{"max_requests_per_conn: 8\n", "max_streams_per_conn: 32\n", "no_bid_body: openrtb\n", "idle_timeout: "}
	for _, want := range wants {
		testsupport.True(t, strings.Contains(r.YAML(), want), "no %q in\n%s", want, r.YAML())
	}
	var out strings.Builder
	r.Write(&out, o.Idle)
	report, _, _ := strings.Cut(out.String(), "ssps:") // only the YAML has the query
	if strings.Contains(report, "s3cret") || !strings.Contains(report, "32 streams at once") || !strings.Contains(report, "a connection serves 8 requests") {
		t.Errorf("%s", report)
	}
}

func TestProbesOfSimulatedSSPs(t *testing.T) {
	t.Parallel()
	vast := sspsim.Response{NoBid: sspsim.Always, NoBidForm: sspsim.NoBidDocument, Kind: sspsim.VAST}
	for name, c := range map[string]struct {
		options sspsim.Options
		body    string
		want    func(*Report) bool
		yaml    string
	}{
		"a healthy one in cleartext": {sspsim.Options{}, "", func(r *Report) bool {
			return r.HTTP1 != nil && !r.HTTP1.Closed && r.HTTP2 == nil && r.Fills > 0 && len(r.NoBids) == 0 && r.Pipelines == nil && r.GzipRequest == nil
		}, "ssps:\n  - name: 127-0-0-1\n    endpoints:\n      - URL\n"},
		"h2c": {sspsim.Options{Protocol: sspsim.H2C, Behaviour: sspsim.Behaviour{Connections: sspsim.Connections{MaxStreams: 9}}}, `{"id":"1"}`, func(r *Report) bool {
			return r.HTTP1 == nil && r.HTTP2 != nil && r.HTTP2.Streams == 9
		}, "ssps:\n  - name: 127-0-0-1\n    endpoints:\n      - URL\n    protocol: h2c\n    pool:\n      max_streams_per_conn: 9\n"},
		"VAST without ads, one request a connection": {sspsim.Options{Behaviour: sspsim.Behaviour{Response: vast, Connections: sspsim.Connections{MaxRequests: 1, Announce: true}}}, `{"id":"1"}`, func(r *Report) bool {
			return r.HTTP1.Served == 1 && r.HTTP1.Closed && slices.Equal(r.NoBids, []NoBid{VAST}) && r.GzipRequest != nil && *r.GzipRequest && *r.ZstdRequest && !*r.ZstdResponse
		}, "ssps:\n  - name: 127-0-0-1\n    endpoints:\n      - URL\n    pool:\n      max_requests_per_conn: 1\n    no_bid_body: vast\n"},
		"no content": {sspsim.Options{Behaviour: sspsim.Behaviour{Response: sspsim.Response{NoBid: sspsim.Always}}}, "", func(r *Report) bool {
			return reflect.DeepEqual(r.NoBids, []NoBid{NoContent}) && r.Fills == 0
		}, ""},
		"errors": {sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}}}, "", func(r *Report) bool {
			return slices.Equal(r.Errors, []string{"a response: status 503"}) && r.Fills == 0
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := sspsim.Start(c.options)
			testsupport.NoError(t, err)
			defer s.Close()
			o := options(s.URL(), nil)
			if c.body != "" {
				o.Body = []byte(c.body)
			}
			r := run(t, o)
			if !c.want(r) {
				t.Errorf("%+v, HTTP/1.1 %+v, HTTP/2 %+v", r, r.HTTP1, r.HTTP2)
			}
			if c.yaml != "" {
				wantYAML(t, r, c.yaml)
			}
		})
	}
}

// counted is a connection that a test counts until it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

func TestAProbeKeepsItsBounds(t *testing.T) {
	t.Parallel()
	for _, bound := range []struct{ conns, requests int }{{1, 1}, {1, 7}, {2, 50}} {
		var requests, open, most atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.WriteHeader(http.StatusNoContent)
		}))
		s.EnableHTTP2 = true
		s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes of one version end at once
		s.StartTLS()
		o := options(s.URL, nil)
		o.Insecure, o.Pipelining, o.Body, o.Idle = true, true, []byte("{}"), 20*time.Millisecond
		o.Conns, o.Requests = bound.conns, bound.requests
		o.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			n := open.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			return counted{c, sync.OnceFunc(func() { open.Add(-1) })}, err
		}
		r, err := Run(t.Context(), o)
		s.Close()
		testsupport.True(t, err == nil && r.HTTP1 != nil && (bound.requests <= 1 || r.HTTP2 != nil), "%+v: %v, %+v", bound, err, r)
		if int(most.Load()) > bound.conns || int(requests.Load()) > bound.requests || open.Load() != 0 {
			t.Errorf("%d connections at once, %d left open, and %d requests; want at most %+v", most.Load(), open.Load(), requests.Load(), bound)
		}
		if bound.conns > 1 && int(most.Load()) != bound.conns {
			t.Errorf("%d connections at once: two wait until the SSP closes them", most.Load())
		}
	}
}

func TestAProbeOfNothingSaysWhy(t *testing.T) {
	t.Parallel()
	silent, err := sspsim.Start(sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Reset: sspsim.Always}}})
	testsupport.NoError(t, err)
	defer silent.Close()
	for url, want := range map[string]string{
		"http://127.0.0.1:1/":   "connection refused",
		"ftp://127.0.0.1/":      "begin with http:// or https://",
		"http://u:p@127.0.0.1/": "no user",
		silent.URL():            "responds to no request",
	} {
		if _, err := Run(t.Context(), options(url, nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// A request that fails says nothing of how many a connection serves, and a connection that no request could open
// says nothing of idle limits.
func TestAProbeClaimsNoMoreThanItSaw(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		requests, good int // the SSP hangs after the good ones
		want           func(*Report) bool
		line           string
	}{
		"enough": {50, 50, func(r *Report) bool {
			return !r.HTTP1.Failed && r.HTTP1.IdleOpen == 20*time.Millisecond && len(r.Errors) == 0
		}, "still open when idle for 20ms"},
		"a timeout":     {50, 3, func(r *Report) bool { return r.HTTP1.Failed && r.HTTP1.Served == 3 && len(r.Errors) > 0 }, "a connection served 3 requests, and the next one failed"},
		"a single one":  {1, 1, func(r *Report) bool { return r.HTTP1.IdleOpen == 0 && r.GzipRequest == nil && r.Pipelines == nil }, "idle limit unknown"},
		"two in all":    {2, 2, func(r *Report) bool { return r.GzipRequest == nil && r.Pipelines == nil }, "still open when idle for 20ms"},
		"three in all":  {3, 3, func(r *Report) bool { return r.GzipRequest == nil && r.HTTP1.Served == 2 }, "still open when idle for 20ms"},
		"eight, a gzip": {8, 8, func(r *Report) bool { return *r.GzipRequest && *r.ZstdRequest && r.HTTP1.Served == 4 }, "still open when idle for 20ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			ended := make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if r.Method == http.MethodPost && int(requests.Add(1)) > c.good { // not the preface of HTTP/2
					// The request's context does not end with the connection if bytes of a pipelined request came.
					<-ended
				}
				w.WriteHeader(http.StatusNoContent)
			}))
			defer s.Close()
			defer close(ended)
			o := options(s.URL, nil)
			o.Idle, o.Pipelining, o.Body, o.Requests = 20*time.Millisecond, true, []byte("{}"), c.requests
			if c.good < c.requests {
				o.Timeout = time.Second
			}
			r := run(t, o)
			var out strings.Builder
			r.Write(&out, o.Idle)
			if r.HTTP1.Closed || !c.want(r) || !strings.Contains(out.String(), c.line) || strings.Contains(out.String(), "max_requests") {
				t.Errorf("%+v, HTTP/1.1 %+v\n%s", r, r.HTTP1, &out)
			}
		})
	}
}

// hostileSSP calls serve for each connection, with its first bytes.
func hostileSSP(t *testing.T, serve func(c net.Conn, isHTTP2 bool)) (url string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				first := make([]byte, 3)
				if _, err := io.ReadFull(c, first); err == nil {
					go io.Copy(io.Discard, c)
					serve(c, string(first) == "PRI")
				}
			}()
		}
	}()
	return "http://" + listener.Addr().String() + "/"
}

// Errors are printed above the YAML, and have text of the SSP.
func TestTextOfAnSSPStaysInItsLine(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	testsupport.NoError(t, err)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"a\x1b[2J\nssps:\n- name: b"}}
	der, err := x509.CreateCertificate(nil, about, about, key.Public(), key)
	testsupport.NoError(t, err)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // the probe refuses the certificate
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	defer s.Close()
	o := options(strings.Replace(s.URL, "127.0.0.1", "localhost", 1), nil)
	o.dial = func(ctx context.Context, network, _ string) (net.Conn, error) { // whatever localhost is here
		return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
	}
	_, err = Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "certificate is valid for a") || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("%q", err)
	}
}

func TestAProbeRefusesALongChainOfCertificates(t *testing.T) {
	t.Parallel()
	cert := testsupport.Certificate("127.0.0.1")
	cert.Certificate = slices.Repeat(cert.Certificate, 11)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.StartTLS()
	defer s.Close()
	o := options(s.URL, nil)
	o.Authorities = testsupport.Roots(cert)
	_, err := Run(t.Context(), o)
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "sent 11 certificates"), "%v", err)
}

// A redirect is a response: its target may be an address that the operator never named.
func TestAProbeFollowsNoRedirect(t *testing.T) {
	t.Parallel()
	var others atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			others.Add(1)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	defer s.Close()
	if r := run(t, options(s.URL, nil)); !slices.Equal(r.Errors, []string{"a response: status 302"}) || others.Load() != 0 || r.Fills != 0 {
		t.Errorf("%+v, %d requests elsewhere", r, others.Load())
	}
}
