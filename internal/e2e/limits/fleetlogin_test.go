package limits

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// A wrong password is reported in the log, and a new password applies from the next reload on.
func TestRedisPasswordIsReadAgainWithAReload(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	r := testsupport.StartRedis(t, "--requirepass", "a-new-password")
	password := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(password, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("the-old-password")
	ab := e2e.Start(t, strings.Replace(sharing(r, s.URL(), "limit: 100"), "redis: {", fmt.Sprintf("redis: {password_file: %q, ", password), 1))
	ab.WantMetric(0, "adbuffer_qps_fleet_connected", "ssp=openx")
	ab.WantMetric(25, "adbuffer_qps_share", "ssp=openx") // a quarter, since four replicas are expected
	testsupport.Eventually(t, "the log names the error", func() bool { return strings.Contains(ab.Log.String(), "AUTH: WRONGPASS") })
	write("a-new-password")
	ab.Signal(syscall.SIGHUP)
	ab.AwaitMetric(1, "adbuffer_qps_fleet_connected", "ssp=openx")
	ab.AwaitMetric(100, "adbuffer_qps_share", "ssp=openx")
	if log := ab.Log.String(); strings.Contains(log, "the-old-password") {
		t.Errorf("the log contains the password:\n%s", log)
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
		if err == nil {
			err = sspsim.WriteKeyPair(cert, file(name+"-cert.pem"), file(name+"-key.pem"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cert, err := ca.ServerCert("redis.test")
	write("redis", cert, err)
	cert, err = ca.ClientCert("adbuffer")
	write("adbuffer", cert, err)
	addr := testsupport.FreeAddr(t)
	r := testsupport.StartRedis(t, "--tls-port", testsupport.Port(t, addr), "--tls-cert-file", file("redis-cert.pem"), "--tls-key-file", file("redis-key.pem"), "--tls-ca-cert-file", file("ca.pem"))
	r.Addr = addr // the replacement listens there too
	s := e2e.Healthy(t)
	config := strings.Replace(sharing(r, s.URL(), "limit: 100"), "redis: {", fmt.Sprintf("redis: {tls: {enabled: true, server_name: redis.test, ca_file: %q, cert_file: %q, key_file: %q}, ",
		file("ca.pem"), file("adbuffer-cert.pem"), file("adbuffer-key.pem")), 1)
	ab := e2e.Start(t, config)
	ab.AwaitMetric(1, "adbuffer_qps_fleet_connected", "ssp=openx")
	ab.Get("/single").WantFill("openx")

	other := e2e.Start(t, strings.Replace(config, "redis.test", "other.test", 1))
	testsupport.Eventually(t, "the log names the error", func() bool {
		return strings.Contains(other.Log.String(), "certificate is valid for redis.test, not other.test")
	})
	other.WantMetric(0, "adbuffer_qps_fleet_connected", "ssp=openx")
}
