package h2spectest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

// patience bounds every wait of a test; it passes only when something is broken.
const patience = 60 * time.Second

// onCleartext are the cases that adbuffer does not pass on a cleartext connection, with the
// reason. There is none over TLS.
var onCleartext = map[string]string{
	"http2/3.5: Sends invalid connection preface": "what does not begin with the preface is HTTP/1, and is refused with 400",
}

// cases is how many cases h2spec has, so that none is lost.
const cases = 146

// Every case of h2spec, the strict ones included, over TLS and in cleartext.
func TestConformance(t *testing.T) {
	ssp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"seatbid":[]}`)) //nolint:errcheck // the cases tell
	}))
	defer ssp.Close()
	binary := build(t)
	certFile, keyFile := certificate(t)
	for _, row := range []struct {
		name, server string
		tls          bool
		exceptions   map[string]string
	}{
		{"TLS", fmt.Sprintf("{tls: {cert_file: %q, key_file: %q}}", certFile, keyFile), true, nil},
		{"cleartext", "{h2c: true}", false, onCleartext},
	} {
		t.Run(row.name, func(t *testing.T) {
			addr := start(t, binary, "server: "+row.server+"\nssps: [{name: a, endpoints: [\""+ssp.URL+"/\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n")
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			number, _ := strconv.Atoi(port)
			c := &config.Config{Host: host, Port: number, Path: "/", Timeout: 10 * time.Second, MaxHeaderLen: 4000, Strict: true, TLS: row.tls, Insecure: true}
			ran := 0
			for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
				group.Test(c)
				ran += verdicts(t, group, row.exceptions)
			}
			if ran != cases {
				t.Errorf("%d cases ran, want %d", ran, cases)
			}
		})
	}
}

// verdicts reports what failed in a group, and returns how many of its cases ran.
func verdicts(t *testing.T, g *spec.TestGroup, exceptions map[string]string) (ran int) {
	for _, tc := range slices.Concat(g.Tests, g.StrictTests) {
		if tc.Result == nil || tc.Result.Skipped {
			continue
		}
		ran++
		name := g.ID() + ": " + tc.Desc
		if why, known := exceptions[name]; tc.Result.Failed != known {
			t.Errorf("%s: failed %v (%v), exception %q", name, tc.Result.Failed, tc.Result.Error, why)
		}
	}
	for _, sub := range g.Groups {
		ran += verdicts(t, sub, exceptions)
	}
	return ran
}

func build(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "adbuffer")
	cmd := exec.Command("go", "build", "-o", file, "./cmd/adbuffer")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return file
}

// start runs adbuffer for the length of the test, and returns where it listens.
func start(t *testing.T, binary, text string) (addr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "adbuffer.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log syncBuffer
	cmd := exec.Command(binary, "serve", "--config", file)
	cmd.Env = append(os.Environ(), "ADBUFFER_SERVER_LISTEN=127.0.0.1:0", "ADBUFFER_ADMIN_LISTEN=127.0.0.1:0", "ADBUFFER_SERVER_DRAIN_DELAY=0s")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // Wait tells
		if err := cmd.Wait(); err != nil {
			t.Errorf("adbuffer: %v", err)
		}
		if t.Failed() || strings.Contains(log.String(), "panic") {
			t.Errorf("the log:\n%s", log.String())
		}
	})
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for line := range strings.Lines(log.String()) {
			var entry struct{ Msg, Listen string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "ready" {
				return entry.Listen
			}
		}
	}
	t.Fatalf("adbuffer did not get ready:\n%s", log.String())
	return ""
}

// certificate writes one for localhost, and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: keyBytes}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// syncBuffer is a bytes.Buffer for a process that writes while the test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
