package h2spectest

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// onCleartext are the cases that adbuffer fails on a cleartext connection, with the reason. Over
// TLS it passes all cases.
var onCleartext = map[string]string{
	"http2/3.5: Sends invalid connection preface": "bytes other than the preface are HTTP/1, and are refused with 400",
}

// cases is the number of h2spec's cases. It shows whether a case is missing.
const cases = 146

// adbuffer runs every case of h2spec, the strict ones included, over TLS and in cleartext.
func TestConformance(t *testing.T) {
	ssp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"seatbid":[]}`))
	}))
	defer ssp.Close()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	testsupport.WriteCertificate(t, testsupport.Certificate("localhost"), certFile, keyFile)
	for _, row := range []struct {
		name, server string
		tls          bool
		exceptions   map[string]string
	}{
		{"TLS", fmt.Sprintf("{tls: {cert_file: %q, key_file: %q}}", certFile, keyFile), true, nil},
		{"cleartext", "{h2c: true}", false, onCleartext},
	} {
		t.Run(row.name, func(t *testing.T) {
			addr := e2e.Start(t, "server: "+row.server+"\nssps: [{name: a, endpoints: [\""+ssp.URL+"/\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n").TrafficAddr
			host, port, err := net.SplitHostPort(addr)
			testsupport.NoError(t, err)
			number, _ := strconv.Atoi(port)
			c := &config.Config{Host: host, Port: number, Path: "/", Timeout: 10 * time.Second, MaxHeaderLen: 4000, Strict: true, TLS: row.tls, Insecure: true}
			ran := 0
			for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
				group.Test(c)
				ran += verdicts(t, group, row.exceptions)
			}
			testsupport.True(t, ran == cases, "%d cases ran, want %d", ran, cases)
		})
	}
}

// verdicts reports the failed cases of a group, and returns how many of its cases ran.
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
