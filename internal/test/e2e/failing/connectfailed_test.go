package failing

import (
	"fmt"
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
	rows := []struct {
		kind, endpoint, reason string
		settings               string
		names                  []string
	}{
		{"tls", unknown.URL(), "tls_failed", "", []string{unknown.Addr(), "tls.ca_file"}},
		{"alpn", http1.URL(), "tls_failed", "protocol: http2, " + e2e.Trust(t, http1), []string{http1.Addr(), "offered h2"}},
		{"tls", unknown.URL(), "tls_failed", "tls: {ca_file: " + e2e.CAFile(t, unknown) + ", server_name: other.example}", []string{"other.example"}},
		{"tls", "https://" + cleartext.Addr() + "/bid", "tls_failed", "", []string{cleartext.Addr()}},
		{"alpn", noALPN.URL(), "tls_failed", "protocol: http2, " + e2e.Trust(t, noALPN), []string{"offered h2", "chose", "protocol (http2)"}},
		{"timeout", silent.URL(), "tls_failed", "timeouts: {tls_handshake: 500ms}", []string{silent.Addr(), "timeouts.tls_handshake"}},
		{"timeout", "https://" + hole.Addr(), "connect_failed", "timeouts: {connect: 500ms}", []string{hole.Addr(), "timeouts.connect"}},
		{"refused", refusing.URL(), "connect_failed", "", []string{refusing.Addr(), "connection refused"}},
		{"dns", "http://ssp.invalid/bid", "connect_failed", "", []string{"ssp.invalid"}},
	}
	ssps, routes := "ssp_defaults: {pool: {dial_backoff: {min: 1m, max: 1m}}}\nssps:\n", "routes:\n"
	for i, row := range rows {
		ssps += fmt.Sprintf("  - {name: s%d, endpoints: [%q], %s}\n", i, row.endpoint, row.settings)
		routes += fmt.Sprintf("  - {name: s%[1]d, match: {path: /s%[1]d}, ssps: [s%[1]d]}\n", i)
	}
	ab := e2e.Start(t, ssps+routes)
	c := ab.Dial()
	for i, row := range rows {
		name := fmt.Sprint("s", i)
		get := func() *e2e.Response { return c.Get("/" + name) }
		want := e2e.Refusal{Status: 502, Reason: row.reason, Route: name, SSP: name, Names: row.names}
		ab.WantRefusal("the first of "+row.kind, want, get)
		// retry.max is 1: the first request has made two dials.
		ab.WantMetric(2, "adbuffer_pool_dial_errors_total", "ssp="+name, "kind="+row.kind)
		want.Names = append(want.Names, "pool.dial_backoff")
		ab.WantRefusal("a later one of "+row.kind, want, get)
		ab.WantMetric(2, "adbuffer_pool_dial_errors_total", "ssp="+name, "kind="+row.kind)
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
