package main

import (
	"net"
	"testing"

	"adbuffer/internal/sspsim"
)

func TestAnSSPThatCannotBeConnectedToIsConnectFailed(t *testing.T) {
	t.Parallel()
	refusing := failing(t, sspsim.Faults{Refuse: true})
	hole := failing(t, sspsim.Faults{BlackHole: true})
	for _, row := range []struct {
		name, endpoint, kind string
		settings             []string
		first, second        []string // what the error names
	}{
		{"refused", refusing.URL(), "refused", nil, []string{refusing.Addr(), "connection refused"}, []string{refusing.Addr(), "connection refused"}},
		{"no such name", "http://ssp.invalid/bid", "dns", nil, []string{"ssp.invalid"}, []string{"ssp.invalid"}},
		{"no answer to the SYN", hole.URL(), "timeout", []string{"timeouts: {connect: 100ms}"}, []string{"100ms", "timeouts.connect"}, []string{hole.Addr(), "100ms", "timeouts.connect"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var env []string
			if row.kind == "timeout" {
				env = append(env, "ADBUFFER_SSP_DEFAULTS_TIMEOUTS_CONNECT=100ms")
			}
			ab := start(t, single(row.endpoint, append(row.settings, "retry: {max: 0}", "pool: {dial_backoff: {min: 5s}}")...), env...)
			want := refusal{status: 502, reason: "connect_failed", ssp: "openx", names: row.first}
			c := ab.dial()
			ab.wantRefusal("first", want, func() *answer { return c.get("/fillbuffer") })
			// Now all addresses back off: the last error is told at once.
			eventually(t, "a failed dial", func() bool { return ab.metric("adbuffer_pool_dial_errors_total", "kind="+row.kind) > 0 })
			want.names = row.second
			ab.wantRefusal("second", want, func() *answer { return c.post("/fillbuffer", "{}") })
		})
	}
}

func TestWithoutTLSInCommonAnSSPIsTLSFailed(t *testing.T) {
	t.Parallel()
	s := startSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	http1 := startSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP1})
	noALPN := startSSP(t, sspsim.Options{Protocol: sspsim.TLSWithout})
	cleartext := healthy(t)
	for _, row := range []struct {
		name, endpoint, kind string
		settings             []string
		names                []string
	}{
		{"an unknown authority", s.URL(), "tls", nil, []string{s.Addr(), "tls.ca_file"}},
		{"another name", "https://localhost:" + port(t, s.Addr()) + "/bid", "tls", []string{"tls: {ca_file: " + caFile(t, s) + ", server_name: other.example}"}, []string{"other.example"}},
		{"ALPN without h2", http1.URL(), "alpn", []string{"protocol: http2", "tls: {ca_file: " + caFile(t, http1) + "}"}, []string{"offered h2", "protocol (http2)"}},
		{"no ALPN", noALPN.URL(), "alpn", []string{"protocol: http2", "tls: {ca_file: " + caFile(t, noALPN) + "}"}, []string{"offered h2", "chose", "protocol (http2)"}},
		{"no TLS", "https://" + cleartext.Addr() + "/bid", "tls", nil, []string{cleartext.Addr()}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			ab := start(t, single(row.endpoint, append(row.settings, "retry: {max: 0}")...))
			ab.wantRefusal(row.name, refusal{status: 502, reason: "tls_failed", ssp: "openx", names: row.names},
				func() *answer { return ab.get("/fillbuffer") })
			if n := ab.metric("adbuffer_pool_dial_errors_total", "ssp=openx", "kind="+row.kind); n < 1 {
				t.Errorf("%v dial errors of kind %s", n, row.kind)
			}
		})
	}
}

func TestAnSSPIsShownAClientCertificate(t *testing.T) {
	t.Parallel()
	s := startSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, RequireClientCert: true, Record: 1})
	cert, err := s.CA().ClientCert("publisher.example")
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := t.TempDir()+"/cert.pem", t.TempDir()+"/key.pem"
	if err := sspsim.WriteKeyPair(cert, certFile, keyFile); err != nil {
		t.Fatal(err)
	}
	ab := start(t, single("https://localhost:"+port(t, s.Addr())+"/bid", "host: ads.partner.example",
		"tls: {ca_file: "+caFile(t, s)+", cert_file: "+certFile+", key_file: "+keyFile+"}"))
	ab.get("/fillbuffer").wantFill("openx")
	got := lastRequest(t, s)
	if name := got.TLS.PeerCertificates[0].Subject.CommonName; name != "publisher.example" {
		t.Errorf("the SSP was shown the certificate of %q", name)
	}
	if got.TLS.ServerName != "localhost" || got.Get(":authority") != "ads.partner.example" {
		t.Errorf("SNI %q and :authority %q, want localhost and ads.partner.example", got.TLS.ServerName, got.Get(":authority"))
	}
}

func port(t testing.TB, addr string) string {
	t.Helper()
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
