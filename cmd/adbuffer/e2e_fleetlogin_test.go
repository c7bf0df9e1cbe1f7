package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/redistest"
	"adbuffer/internal/sspsim"
)

// A password that is wrong shows, and one that was replaced holds from the next
// reload on.
func TestRedisPasswordIsReadAgainWithAReload(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	r := redistest.Start(t, "--requirepass", "a-new-password")
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(password, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-old-password")
	ab := start(t, strings.Replace(sharing(r, s.URL(), "limit: 100"), "redis: {", sprintf("redis: {password_file: %q, ", password), 1))
	ab.wantMetric(0, "adbuffer_qps_fleet_connected", "ssp=openx")
	ab.wantMetric(25, "adbuffer_qps_share", "ssp=openx") // of four expected
	write("a-new-password")
	ab.signal(syscall.SIGHUP)
	ab.awaitMetric(1, "adbuffer_qps_fleet_connected", "ssp=openx")
	ab.awaitMetric(100, "adbuffer_qps_share", "ssp=openx")
	log := ab.log.String()
	if !strings.Contains(log, "AUTH: WRONGPASS") || strings.Contains(log, "the-old-password") {
		t.Errorf("the log does not say what is wrong, or says the password:\n%s", log)
	}
}

func TestRedisOverTLSWithBothCertificates(t *testing.T) {
	t.Parallel()
	ca, err := sspsim.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := ca.WriteFile(file("ca.pem")); err != nil {
		t.Fatal(err)
	}
	write := func(name string, cert tls.Certificate, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		for suffix, block := range map[string]*pem.Block{"-cert.pem": {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, "-key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
			if err := os.WriteFile(file(name+suffix), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	cert, err := ca.ServerCert("redis.test")
	write("redis", cert, err)
	cert, err = ca.ClientCert("adbuffer")
	write("adbuffer", cert, err)
	addr := freeAddr(t)
	r := redistest.Start(t, "--tls-port", port(t, addr), "--tls-cert-file", file("redis-cert.pem"), "--tls-key-file", file("redis-key.pem"), "--tls-ca-cert-file", file("ca.pem"))
	r.Addr = addr // which it listens on too
	s := healthy(t)
	config := strings.Replace(sharing(r, s.URL(), "limit: 100"), "redis: {", sprintf("redis: {tls: {enabled: true, server_name: redis.test, ca_file: %q, cert_file: %q, key_file: %q}, ",
		file("ca.pem"), file("adbuffer-cert.pem"), file("adbuffer-key.pem")), 1)
	ab := start(t, config)
	ab.awaitMetric(1, "adbuffer_qps_fleet_connected", "ssp=openx")
	ab.get("/single").wantFill("openx")

	other := start(t, strings.Replace(config, "redis.test", "other.test", 1))
	other.wantMetric(0, "adbuffer_qps_fleet_connected", "ssp=openx")
	if log := other.log.String(); !strings.Contains(log, "certificate is valid for redis.test, not other.test") {
		t.Errorf("the log does not say what is wrong:\n%s", log)
	}
}
