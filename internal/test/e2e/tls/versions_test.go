package tls

import (
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// OpenSSL with its old versions allowed finds TLS 1.2 and 1.3 on both listeners, and no
// renegotiation.
func TestTLSVersionsAndRenegotiation(t *testing.T) {
	t.Parallel()
	testsupport.Needs(t, "openssl", "openssl")
	a, s := e2e.NewAuthority(t), e2e.Healthy(t)
	admin := fmt.Sprintf("admin: {tls: {cert_file: %q, key_file: %q}}\n", a.File("cert.pem"), a.File("key.pem"))
	ab := e2e.Launch(t, e2e.Patient(), "serve", "--config", e2e.WriteConfig(t, a.ServerSection("")+admin+e2e.Single(s.URL())))
	for _, listener := range []struct{ name, addr string }{{"traffic", ab.TrafficAddr}, {"admin", ab.AdminAddr}} {
		for _, row := range []struct {
			version string
			taken   bool
		}{{"-tls1", false}, {"-tls1_1", false}, {"-tls1_2", true}, {"-tls1_3", true}} {
			wantTaken(t, listener.addr, a, row.taken, "alert protocol version", row.version)
		}
		// In s_client, "R" on its own line starts a renegotiation.
		out := sClient(t, listener.addr, a, "R\n", "-tls1_2")
		if _, after, asked := strings.Cut(out, "RENEGOTIATING"); !asked || !strings.Contains(after, "SSL alert") {
			t.Errorf("%s: renegotiation was not refused:\n%s", listener.name, testsupport.Tail(out, 1500))
		}
		for _, weak := range []string{"AES128-SHA", "DES-CBC3-SHA", "ECDHE-RSA-RC4-SHA", "NULL-SHA256", "ADH-AES128-SHA256"} {
			if out := sClient(t, listener.addr, a, "", "-tls1_2", "-cipher", weak+":@SECLEVEL=0"); strings.Contains(out, "Cipher is "+weak) {
				t.Errorf("%s: %s was negotiated", listener.name, weak)
			}
		}
	}
	ab.ExitIsTested = true // the harness cannot check its admin listener for leaks
}

// sClient connects with openssl s_client, sends input, and returns the output.
func sClient(t *testing.T, addr string, a *e2e.Authority, input string, args ...string) string {
	t.Helper()
	if len(args) == 1 {
		args = append(args, "-cipher", "ALL:@SECLEVEL=0")
	}
	cmd := exec.Command(testsupport.Needs(t, "openssl", "openssl"), append([]string{"s_client", "-connect", addr, "-servername", "localhost", "-CAfile", a.File("ca.pem")}, args...)...)
	in, err := cmd.StdinPipe()
	testsupport.NoError(t, err)
	log := new(testsupport.LogBuffer)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; install the Debian package openssl", err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	if input != "" {
		testsupport.Eventually(t, "the handshake has ended", func() bool { return strings.Contains(log.String(), "Verify return code") || isClosed(ended) })
		io.WriteString(in, input)
		testsupport.Eventually(t, "there is a response to "+input, func() bool { return strings.Contains(log.String(), "SSL alert") || isClosed(ended) })
	}
	in.Close()
	select {
	case <-ended:
	case <-time.After(testsupport.Patience):
		cmd.Process.Kill()
		t.Fatalf("openssl %v did not end:\n%s", args, log)
	}
	return log.String()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
