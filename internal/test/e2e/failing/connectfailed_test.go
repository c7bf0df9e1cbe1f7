package failing

import (
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// A request ends with the dials' error, whether it waited for the dials or arrived while all
// addresses were in back-off. For an SSP with an unknown authority that is tls_failed, from the first request on.
func TestFailedDialsAreCountedByTheirKind(t *testing.T) {
	t.Parallel()
	unknown := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	http1 := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSHTTP1})
	noALPN := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSWithout})
	cleartext := e2e.Healthy(t)
	silent := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Hang: sspsim.Always}}})
	refusing := e2e.Failing(t, sspsim.Faults{Refuse: true})
	hole := e2e.Failing(t, sspsim.Faults{BlackHole: true})
	for _, row := range []struct {
		kind, endpoint, reason string
		settings, names        []string
	}{
		{"tls", unknown.URL(), "tls_failed", nil, []string{unknown.Addr(), "tls.ca_file"}},
		{"alpn", http1.URL(), "tls_failed", []string{"protocol: http2", e2e.Trust(t, http1)}, []string{http1.Addr(), "offered h2"}},
		{"tls", unknown.URL(), "tls_failed", []string{"tls: {ca_file: " + e2e.CAFile(t, unknown) + ", server_name: other.example}"}, []string{"other.example"}},
		{"tls", "https://" + cleartext.Addr() + "/bid", "tls_failed", nil, []string{cleartext.Addr()}},
		{"alpn", noALPN.URL(), "tls_failed", []string{"protocol: http2", e2e.Trust(t, noALPN)}, []string{"offered h2", "chose", "protocol (http2)"}},
		{"timeout", silent.URL(), "tls_failed", []string{"timeouts: {tls_handshake: 2s}"}, []string{silent.Addr(), "timeouts.tls_handshake"}},
		{"timeout", "https://" + hole.Addr(), "connect_failed", []string{"timeouts: {connect: 2s}"}, []string{hole.Addr(), "timeouts.connect"}},
		{"refused", refusing.URL(), "connect_failed", nil, []string{refusing.Addr(), "connection refused"}},
		{"dns", "http://ssp.invalid/bid", "connect_failed", nil, []string{"ssp.invalid"}},
	} {
		t.Run(row.reason+" "+row.kind, func(t *testing.T) {
			t.Parallel()
			ab := e2e.Start(t, e2e.Single(row.endpoint, append(row.settings, "pool: {dial_backoff: {min: 1m, max: 1m}}")...))
			c := ab.Dial()
			want := e2e.Refusal{Status: 502, Reason: row.reason, SSP: "openx", Names: row.names}
			ab.WantRefusal("the first", want, func() *e2e.Response { return c.Get("/fillbuffer") })
			// retry.max is 1: the first request has made two dials.
			ab.WantMetric(2, "adbuffer_pool_dial_errors_total", "kind="+row.kind)
			want.Names = append(want.Names, "pool.dial_backoff")
			ab.WantRefusal("a later one", want, func() *e2e.Response { return c.Get("/fillbuffer") })
			ab.WantMetric(2, "adbuffer_pool_dial_errors_total", "kind="+row.kind)
		})
	}
}

func TestAnSSPGetsTheClientCertificate(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, RequireClientCert: true, Record: 1})
	cert, err := s.CA().ClientCert("publisher.example")
	testsupport.NoError(t, err)
	certFile, keyFile := t.TempDir()+"/cert.pem", t.TempDir()+"/key.pem"
	testsupport.NoError(t, sspsim.WriteKeyPair(cert, certFile, keyFile))
	ab := e2e.Start(t, e2e.Single("https://localhost:"+testsupport.Port(t, s.Addr())+"/bid", "host: ads.partner.example",
		"tls: {ca_file: "+e2e.CAFile(t, s)+", cert_file: "+certFile+", key_file: "+keyFile+"}"))
	ab.Get("/fillbuffer").WantFill("openx")
	got := e2e.LastRequest(t, s)
	testsupport.Equal(t, got.TLS.PeerCertificates[0].Subject.CommonName, "publisher.example", "the SSP got the certificate of %q")
	if got.TLS.ServerName != "localhost" || got.Get(":authority") != "ads.partner.example" {
		t.Errorf("SNI %q and :authority %q, want localhost and ads.partner.example", got.TLS.ServerName, got.Get(":authority"))
	}
}
