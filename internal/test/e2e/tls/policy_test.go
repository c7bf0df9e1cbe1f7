package tls

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// wantTaken runs openssl s_client, and checks whether the handshake succeeds. If not, the listener
// must have sent the alert.
func wantTaken(t *testing.T, addr string, a *e2e.Authority, taken bool, alert string, args ...string) {
	t.Helper()
	out := sClient(t, addr, a, "", args...)
	if got := strings.Contains(out, "Cipher is ") && !strings.Contains(out, "Cipher is (NONE)"); got != taken {
		t.Errorf("%v: taken %v, want %v:\n%s", args, got, taken, testsupport.Tail(out, 1500))
	}
	if !taken && !strings.Contains(out, alert) {
		t.Errorf("%v: no alert %q:\n%s", args, alert, testsupport.Tail(out, 1500))
	}
}

const errorsOfClients = "adbuffer_client_protocol_errors_total"

// server.tls.min_version and groups hold for the admin listener too.
func TestClientsBelowTheMinimumAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	testsupport.Needs(t, "openssl", "openssl")
	a, s := e2e.NewAuthority(t), e2e.Healthy(t)
	const policy = `min_version: "1.3", groups: [secp384r1, X25519MLKEM768]`
	admin := fmt.Sprintf("admin: {tls: {cert_file: %q, key_file: %q}}\n", a.File("cert.pem"), a.File("key.pem"))
	ab := e2e.Launch(t, e2e.Patient(), "serve", "--config", e2e.WriteConfig(t, a.ServerSection("", ", "+policy)+admin+e2e.Single(s.URL())))
	for _, addr := range []string{ab.TrafficAddr, ab.AdminAddr} {
		wantTaken(t, addr, a, false, "alert protocol version", "-tls1_1")
		wantTaken(t, addr, a, false, "alert protocol version", "-tls1_2")
		wantTaken(t, addr, a, false, "alert handshake failure", "-tls1_3", "-groups", "X25519:P-256")
		wantTaken(t, addr, a, true, "", "-tls1_3", "-groups", "X25519:P-384")
	}
	ab.ExitIsTested = true // the harness does not check its admin listener for leaks
}

// A reload changes the policy of both listeners for new handshakes. An open connection stays.
func TestTheTLSPolicyOfAReloadHoldsForNewHandshakes(t *testing.T) {
	t.Parallel()
	testsupport.Needs(t, "openssl", "openssl")
	a, s := e2e.NewAuthority(t), e2e.Healthy(t)
	config := func(policy string) string { return a.ServerSection("", policy) + e2e.Single(s.URL()) }
	ab := e2e.Start(t, config(""))
	old := a.ClientConfig(nil)
	old.MaxVersion = 0x0303 // TLS 1.2
	kept, _, err := tryTLS(ab, old)
	testsupport.NoError(t, err)
	ab.WantMetric(1, "adbuffer_client_tls_handshakes_by_version_total", "version=1.2")
	ab.Take(config(`, min_version: "1.3"`))
	wantTaken(t, ab.TrafficAddr, a, false, "alert protocol version", "-tls1_2")
	wantTaken(t, ab.TrafficAddr, a, true, "", "-tls1_3")
	ab.AwaitMetric(1, errorsOfClients, "protocol=tls", "reason=version")
	kept.Get("/fillbuffer").WantFill("openx")
	ab.Take(config(`, groups: [secp384r1]`))
	wantTaken(t, ab.TrafficAddr, a, false, "alert handshake failure", "-tls1_3", "-groups", "X25519")
	wantTaken(t, ab.TrafficAddr, a, true, "", "-tls1_2", "-groups", "P-384:P-256") // the certificate needs P-256 too
	ab.AwaitMetric(1, errorsOfClients, "protocol=tls", "reason=mismatch")
}

// sServer runs openssl s_server, which responds to each request with a page about the
// connection, and returns its URL.
func sServer(t *testing.T, a *e2e.Authority, args ...string) string {
	t.Helper()
	addr := testsupport.FreeAddr(t)
	cmd := exec.Command(testsupport.Needs(t, "openssl", "openssl"), append([]string{"s_server", "-accept", addr, "-www", "-quiet", "-cert", a.File("cert.pem"), "-key", a.File("key.pem")}, args...)...)
	testsupport.StartDaemon(t, "tcp", addr, cmd)
	return "https://" + addr + "/bid"
}

func TestSSPsOutsideThePolicyAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	a := e2e.NewAuthority(t)
	old, strict := sServer(t, a, "-tls1_2"), sServer(t, a, "-tls1_3", "-groups", "P-384")
	rows := []struct {
		url, policy string
		failure     string // the reason in the metric; "" for a handshake that succeeds
	}{
		{old, `min_version: "1.3"`, "version"},
		{old, `min_version: "1.2"`, ""},
		{strict, `groups: [x25519, X25519MLKEM768]`, "mismatch"},
		{strict, `groups: [x25519, secp384r1]`, ""},
	}
	ssps, routes := "ssps:\n", "routes:\n"
	for i, row := range rows {
		ssps += fmt.Sprintf("  - {name: s%d, endpoints: [%q], protocol: http1, tls: {ca_file: %q, %s}}\n", i, row.url, a.File("ca.pem"), row.policy)
		routes += fmt.Sprintf("  - {name: s%[1]d, match: {path: /s%[1]d}, ssps: [s%[1]d]}\n", i)
	}
	ab := e2e.Start(t, ssps+routes)
	for i, row := range rows {
		name := fmt.Sprint("s", i)
		response := ab.Get("/" + name)
		if row.failure == "" {
			response.WantFill(name)
			continue
		}
		response.WantStatus("tls_failed", 502)
		ab.AwaitMetricAbove(0, "adbuffer_tls_handshake_errors_total", "ssp="+name, "reason="+row.failure)
	}
}
