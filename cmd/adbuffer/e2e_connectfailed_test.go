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
		names                []string // what the error names
	}{
		{"refused", refusing.URL(), "refused", nil, []string{refusing.Addr(), "connection refused"}},
		{"no such name", "http://ssp.invalid/bid", "dns", nil, []string{"ssp.invalid"}},
		{"no answer to the SYN", hole.URL(), "timeout", []string{"timeouts: {connect: 100ms}"}, []string{hole.Addr(), "100ms", "timeouts.connect"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var env []string
			if row.kind == "timeout" {
				env = append(env, "ADBUFFER_SSP_DEFAULTS_TIMEOUTS_CONNECT=100ms")
			}
			ab := start(t, single(row.endpoint, append(row.settings, "retry: {max: 0}", "pool: {dial_backoff: {min: 5s}}")...), env...)
			want := refusal{status: 502, reason: "connect_failed", ssp: "openx", names: row.names}
			c := ab.dial()
			ab.wantRefusal("first", want, func() *answer { return c.get("/fillbuffer") })
			ab.wantRefusal("second", want, func() *answer { return c.get("/fillbuffer") })
			ab.wantMetric(2, "adbuffer_pool_dial_errors_total", "kind="+row.kind)
			// Now all addresses back off: the last error is told at once.
			want.names = append(want.names, "pool.dial_backoff")
			ab.wantRefusal("third", want, func() *answer { return c.post("/fillbuffer", "{}") })
			ab.wantMetric(2, "adbuffer_pool_dial_errors_total", "kind="+row.kind)
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

// What failed the dials is how a request ends, whether it waited for the dials or
// came while all addresses back off. The first request to an SSP with an unknown
// authority ended as connect_failed.
func TestFailedDialsAreToldByTheirKind(t *testing.T) {
	t.Parallel()
	unknown := startSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	http1 := startSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP1})
	silent := startSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Hang: sspsim.Always}}})
	refusing := failing(t, sspsim.Faults{Refuse: true})
	hole := failing(t, sspsim.Faults{BlackHole: true})
	const timeout = "ADBUFFER_SSP_DEFAULTS_TIMEOUTS_"
	for _, row := range []struct {
		kind, endpoint, reason string
		settings, env          []string
		names                  []string
	}{
		{"tls", unknown.URL(), "tls_failed", nil, nil, []string{unknown.Addr(), "tls.ca_file"}},
		{"alpn", http1.URL(), "tls_failed", []string{"protocol: http2", "tls: {ca_file: " + caFile(t, http1) + "}"}, nil, []string{http1.Addr(), "offered h2"}},
		{"timeout", silent.URL(), "tls_failed", nil, []string{timeout + "TLS_HANDSHAKE=100ms"}, []string{silent.Addr(), "timeouts.tls_handshake"}},
		{"timeout", hole.URL(), "connect_failed", nil, []string{timeout + "CONNECT=100ms"}, []string{hole.Addr(), "timeouts.connect"}},
		{"refused", refusing.URL(), "connect_failed", nil, nil, []string{refusing.Addr(), "connection refused"}},
		{"dns", "http://ssp.invalid/bid", "connect_failed", nil, nil, []string{"ssp.invalid"}},
	} {
		t.Run(row.reason+" "+row.kind, func(t *testing.T) {
			t.Parallel()
			ab := start(t, single(row.endpoint, append(row.settings, "pool: {dial_backoff: {min: 5s}}")...), row.env...)
			c := ab.dial()
			want := refusal{status: 502, reason: row.reason, ssp: "openx", names: row.names}
			ab.wantRefusal("the first", want, func() *answer { return c.get("/fillbuffer") })
			// retry.max is 1: the first request has made two dials.
			ab.wantMetric(2, "adbuffer_pool_dial_errors_total", "kind="+row.kind)
			want.names = append(want.names, "pool.dial_backoff")
			ab.wantRefusal("a later one", want, func() *answer { return c.get("/fillbuffer") })
			ab.wantMetric(2, "adbuffer_pool_dial_errors_total", "kind="+row.kind)
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
