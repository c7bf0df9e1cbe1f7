package config

import (
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// writeCert makes a certificate and its key in dir and returns their files.
func writeCert(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	testsupport.WriteCertificate(t, testsupport.Certificate(), certFile, keyFile)
	return certFile, keyFile
}

func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	testsupport.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestTLSFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	cert, key := writeCert(t, dir, "a")
	_, otherKey := writeCert(t, dir, "b")
	notPEM := writeFile(t, dir, "not.pem", "nothing")

	vars := map[string]string{
		"ADBUFFER_SSPS_OPENX_TLS_CA_FILE":   cert,
		"ADBUFFER_SSPS_OPENX_TLS_CERT_FILE": cert,
		"ADBUFFER_SSPS_OPENX_TLS_KEY_FILE":  key,
	}
	cfg := mustParseEnv(t, twoSSPs, vars)
	got, want := cfg.SSPs[0].TLS.ClientTLS, (ClientTLS{CAFile: cert, CertFile: cert, KeyFile: key})
	testsupport.True(t, got == want, "got %+v, want %+v", got, want)

	vars["ADBUFFER_SSPS_OPENX_TLS_KEY_FILE"] = otherKey
	wantError(t, vars, cert, "cannot be used with key_file "+otherKey+": tls: private key does not match public key")
	vars["ADBUFFER_SSPS_OPENX_TLS_KEY_FILE"] = notPEM
	wantError(t, vars, cert, "cannot be used with key_file")
	vars["ADBUFFER_SSPS_OPENX_TLS_KEY_FILE"] = key
	vars["ADBUFFER_SSPS_OPENX_TLS_CA_FILE"] = notPEM
	wantError(t, vars, notPEM, "must hold a certificate in PEM")
	vars["ADBUFFER_SSPS_OPENX_TLS_CA_FILE"] = writeFile(t, dir, "large", strings.Repeat("x", 1<<20+1))
	wantError(t, vars, vars["ADBUFFER_SSPS_OPENX_TLS_CA_FILE"], "must not be larger than 1048576 bytes")
}

func TestTokenFileMustHoldOneUsableLine(t *testing.T) {
	dir := t.TempDir()
	for content, rule := range map[string]string{
		"":                                     "the file must hold a token",
		"\n\n":                                 "the file must hold a token",
		"two words of a token":                 "must be one line of printable ASCII without spaces",
		"first-line\nsecond-line\n":            "must be one line of printable ASCII without spaces",
		strings.Repeat("x", maxTokenBytes+1):   "must not be larger than 4096 bytes",
		"\xef\xbb\xbfbyte-order-mark-in-front": "must be one line of printable ASCII without spaces",
	} {
		file := writeFile(t, dir, "token", content)
		wantError(t, map[string]string{"ADBUFFER_ADMIN_TOKEN_FILE": file}, file, rule)
	}
}

func TestPipesAndDevicesAreNotRead(t *testing.T) {
	wantError(t, map[string]string{"ADBUFFER_ADMIN_TOKEN_FILE": os.DevNull}, os.DevNull, "must be a regular file")
}

// wantFault expects exactly one error, which shows the value and contains the rule.
func wantError(t *testing.T, vars map[string]string, value, rule string) {
	t.Helper()
	_, _, err := Parse([]byte(twoSSPs), vars)
	var errs Errors
	testsupport.MustTrue(t, errors.As(err, &errs) && len(errs) == 1 && strings.Contains(errs[0].Rule, rule), "got %v, want one error about %q", err, rule)
	testsupport.True(t, errs[0].Value == shown(value), "the error shows %s, want %s", errs[0].Value, shown(value))
}

func TestLoadNamesTheReasonIfAFileCannotBeRead(t *testing.T) {
	if _, _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), nil); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got %v", err)
	}
	_, _, err := Load(t.TempDir(), nil)
	testsupport.True(t, err != nil, "a folder is not a file")
}

func TestFileSizeIsBounded(t *testing.T) {
	text := twoSSPs + "#" + strings.Repeat("x", maxFileBytes)
	file := writeFile(t, t.TempDir(), "large.yaml", text)
	_, _, err := Load(file, nil)
	testsupport.True(t, err != nil && err.Error() == file+":1:1: the file must not be larger than 1048576 bytes", "got %v", err)
}

func TestFilesAreAllThatAConfigNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	cfg := &Config{SSPs: make([]SSP, 2)}
	cfg.Admin.TokenFile, cfg.Admin.ClientCAFile = file("token"), file("admin-ca")
	cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile = file("cert"), file("key")
	cfg.SSPs[0].TLS.CAFile, cfg.SSPs[1].TLS.CAFile = file("ca"), file("ca")
	cfg.SSPs[1].TLS.CertFile, cfg.SSPs[1].TLS.KeyFile = file("ssp-cert"), file("ssp-key")
	want := []string{file("admin-ca"), file("ca"), file("cert"), file("key"), file("ssp-cert"), file("ssp-key"), file("token")}
	got := cfg.Files()
	testsupport.True(t, slices.Equal(got, want), "%v, want %v", got, want)
}

func TestCertificatesThatEndSoonWarn(t *testing.T) {
	key := testsupport.Certificate().PrivateKey.(crypto.Signer)
	for _, row := range []struct {
		left time.Duration
		want string // in each warning; "" = there is none
	}{
		{15 * 24 * time.Hour, ""},
		{13 * 24 * time.Hour, " expires at "},
		{-time.Hour, " expired at "},
	} {
		dir := t.TempDir()
		cert, keyFile := filepath.Join(dir, "c.pem"), filepath.Join(dir, "c.key")
		testsupport.WriteCertificate(t, testsupport.CertificateUntil(time.Now().Add(row.left), key), cert, keyFile)
		files := fmt.Sprintf("tls: {cert_file: %q, key_file: %q}", cert, keyFile)
		_, found, err := Parse(fmt.Appendf(nil, `
server: {%[1]s}
admin: {%[1]s}
ssps: [{name: a, endpoints: ["https://ssp.example/bid"], %[1]s}]
routes: [{name: r, match: {path: /}, ssps: [a]}]
`, files), nil)
		testsupport.NoError(t, err)
		var warned []string
		for _, w := range found {
			if strings.Contains(w.Text, cert) && strings.Contains(w.Text, row.want) {
				warned = append(warned, w.Path)
			}
		}
		want := []string{"server.tls.cert_file", "admin.tls.cert_file", "ssps[0].tls.cert_file"}
		if row.want == "" {
			want = nil
		}
		testsupport.True(t, slices.Equal(warned, want), "%v left: warnings about %v, want %v: %v", row.left, warned, want, found)
	}
}
