package configfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// pair writes a new certificate of ca, its key and ca into dir.
func pair(t *testing.T, ca *sspsim.CA, dir string) TLSFiles {
	t.Helper()
	f := TLSFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	cert, err := ca.ClientCert("adbuffer")
	if err == nil {
		err = errors.Join(sspsim.WriteKeyPair(cert, f.Cert, f.Key), ca.WriteFile(f.CA))
	}
	testsupport.NoError(t, err)
	return f
}

func newCA(t *testing.T) *sspsim.CA {
	t.Helper()
	ca, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	return ca
}

func TestLoadReportsEachFileThatIsNotValid(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	good := pair(t, ca, dir)
	other := pair(t, ca, t.TempDir())
	file := func(name, content string) string {
		write(t, filepath.Join(dir, name), content)
		return filepath.Join(dir, name)
	}
	key, err := os.ReadFile(good.Key)
	testsupport.NoError(t, err)
	for _, c := range []struct {
		files TLSFiles
		want  string // keys and rules, joined
	}{
		{good, ""},
		{TLSFiles{}, ""},
		{TLSFiles{Cert: good.Cert, Key: other.Key}, "cert_file cannot be used with key_file " + other.Key},
		{TLSFiles{Cert: dir, Key: dir + "/missing", CA: file("empty", "")}, "cert_file must be a regular file|key_file cannot be read: no such file|ca_file must not be empty"},
		{TLSFiles{CA: file("large", strings.Repeat("x", maxBytes+1))}, "ca_file must not be larger than 1048576 bytes"},
		{TLSFiles{CA: file("none", "nothing")}, "ca_file must hold a certificate in PEM"},
		{TLSFiles{CA: file("bom", "\xef\xbb\xbf"+string(ca.PEM()))}, "ca_file must not begin with a byte order mark (BOM)"},
		{TLSFiles{CA: file("utf16", "\xff\xfe-\x00-\x00")}, "ca_file must not be UTF-16"},
		{TLSFiles{CA: file("joined", strings.TrimSpace(string(ca.PEM()))+string(ca.PEM()))}, "ca_file must have a line end before -----BEGIN, in line " + fmt.Sprint(strings.Count(string(ca.PEM()), "\n"))},
		{TLSFiles{CA: file("cut", "-----BEGIN CERTIFICATE-----\nbm90\n"+string(ca.PEM()))}, "ca_file must hold valid PEM, but the block that begins in line 1 is not"},
		{TLSFiles{CA: file("junk", string(ca.PEM())+"# next\n-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")}, "ca_file must hold valid PEM, but the block that begins in line " + fmt.Sprint(strings.Count(string(ca.PEM()), "\n")+2)},
		{TLSFiles{CA: file("comments", "# a -----BEGIN CERTIFICATE----- begins below\r\nsubject=x\r\n"+strings.ReplaceAll(string(ca.PEM()), "\n", "\r\n")+"# the end")}, ""},
		{TLSFiles{Cert: good.Cert, Key: file("encrypted", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nbm90\n-----END ENCRYPTED PRIVATE KEY-----\n")}, "key_file must not hold an encrypted key; openssl pkey"},
		{TLSFiles{Cert: good.Cert, Key: file("encrypted1", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nbm90\n-----END RSA PRIVATE KEY-----\n")}, "key_file must not hold an encrypted key; openssl pkey"},
		{TLSFiles{Cert: file("certbom", "\xef\xbb\xbfx"), Key: good.Key}, "cert_file must not begin with a byte order mark"},
		{TLSFiles{CA: file("key", string(ca.PEM())+string(key))}, "ca_file must hold certificates only, but block 2 is"},
		{TLSFiles{CA: file("bad", "-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n")}, "ca_file must hold valid certificates, but number 1 is not"},
	} {
		m, err := c.files.Load()
		if c.want == "" {
			testsupport.True(t, err == nil && (m.Certificate != nil) == (c.files.Cert != "") && (m.Authorities != nil) == (c.files.CA != ""), "%+v: %v, %+v", c.files, err, m)
			continue
		}
		var errs []error
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			errs = joined.Unwrap()
		}
		want := strings.Split(c.want, "|")
		if len(errs) != len(want) {
			t.Errorf("%+v: %v, want %q", c.files, err, want)
			continue
		}
		for i, err := range errs {
			e := new(Error)
			testsupport.True(t, errors.As(err, &e) && strings.HasPrefix(e.Key+" "+e.Rule, want[i]) && strings.HasPrefix(e.Error(), e.File+": "), "%+v: %v, want %q", c.files, err, want[i])
		}
	}
}

func TestCheckLoadsAChangeOnceAndKeepsValidMaterial(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	files := pair(t, ca, dir)
	k, err := Keep(files)
	testsupport.NoError(t, err)
	check := func(what string, wantChanged, wantErr bool) {
		t.Helper()
		before := k.Current()
		changed, err := k.Check()
		testsupport.True(t, changed == wantChanged && (err != nil) == wantErr && (k.Current() != before) == wantChanged, "%s: changed is %v, the error %v", what, changed, err)
	}
	check("no change", false, false)
	pair(t, ca, dir)
	check("a new pair", true, false)
	check("no further change", false, false)
	content, err := os.ReadFile(files.Key)
	testsupport.NoError(t, err)
	write(t, files.Key, "broken")
	check("a broken key", false, true)
	testsupport.True(t, !k.Valid(), "broken files are good")
	check("the same broken key again", false, false)
	write(t, files.Key, string(content))
	check("the key as before", false, false)
	testsupport.True(t, k.Valid(), "the files that are in use are not good")
	later := time.Now().Add(time.Hour)
	testsupport.NoError(t, os.Chtimes(files.Cert, later, later))
	check("another time, the same content", false, false)
}

// Kubernetes swaps a symbolic link to a folder.
func TestCheckSeesAChangeBehindASymbolicLink(t *testing.T) {
	t.Parallel()
	ca, dir := newCA(t), t.TempDir()
	for _, name := range []string{"1", "2"} {
		testsupport.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		pair(t, ca, filepath.Join(dir, name))
	}
	testsupport.NoError(t, os.Symlink("1", filepath.Join(dir, "data")))
	k, err := Keep(TLSFiles{Cert: filepath.Join(dir, "data/cert.pem"), Key: filepath.Join(dir, "data/key.pem")})
	testsupport.NoError(t, err)
	testsupport.NoError(t, errors.Join(os.Symlink("2", filepath.Join(dir, "new")), os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data"))))
	if changed, err := k.Check(); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
}
