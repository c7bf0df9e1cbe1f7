package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/operate/adminview"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/logs"
)

// fullDisk is the writer of a log whose disk is full.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestTheOverviewNamesWhatIsWrongWithTheService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testsupport.NoError(t, err)
	testsupport.WriteCertificate(t, testsupport.CertificateUntil(time.Now().Add(-time.Hour), private, "localhost"), cert, key)
	files := `tls: {cert_file: "` + cert + `", key_file: "` + key + `"}`
	s := setup{
		server: files, ssps: []string{at("a", sim(t, sspsim.Options{Protocol: sspsim.TLSAuto}), "qps: {limit: 100, scope: fleet}", files)},
		routes: []string{to("x", "a")}, more: `fleet: {redis: {address: "` + testsupport.FreeAddr(t) + `", ` + strings.Replace(files, "{", "{enabled: true, ", 1) + `}, expected_replicas: 2}`,
	}
	sink := logs.NewSink(fullDisk{}, nil)
	core, lines := observer.New(zap.WarnLevel)
	a, err := New(s.load(t), zap.New(core), Process{Sink: sink})
	testsupport.NoError(t, err)
	defer a.Close()
	ctx, stop := context.WithCancel(t.Context())
	a.background.Go(func() { a.views.Watch(ctx, a.proxy, sink.Dropped) })
	defer stop()
	sink.Write([]byte("a line\n"))
	var got struct{ Notices []adminview.Notice }
	texts := func() (all []string) {
		b, err := json.Marshal(a.overview())
		testsupport.NoError(t, err)
		got.Notices = nil
		testsupport.NoError(t, json.Unmarshal(b, &got))
		for _, n := range got.Notices {
			all = append(all, n.Text)
		}
		return all
	}
	testsupport.Eventually(t, "a look finds the lost line", func() bool { return len(texts()) == 5 })
	for i, want := range []string{
		"The certificate of server.tls.cert_file expired at ", "The certificate of fleet.redis.tls.cert_file expired at ", "The certificate of tls.cert_file of a expired at ", "Redis is away: adbuffer sends these SSPs at most its last share of qps.limit: a (50/s). ", "Log lines are lost, 1 since start: ",
	} {
		testsupport.True(t, strings.HasPrefix(got.Notices[i].Text, want), "notice %d is %q, want %q", i, got.Notices[i].Text, want)
	}
	x := a.explain([]byte("GET /x HTTP/1.1\r\nHost: a\r\n\r\n"), netip.MustParseAddr("127.0.0.1"))
	testsupport.Equal(t, strings.Join(x.SSPs[0].Now, "; "), "Redis is away: adbuffer sends at most 50 requests a second, its last share of qps.limit; see fleet.redis", "explain says %s")

	testsupport.NoError(t, os.WriteFile(key, []byte("broken"), 0o600))
	a.watchCertificates(ctx)
	testsupport.Eventually(t, "broken files are reported", func() bool {
		return lines.FilterMessageSnippet("the changed TLS files for Redis are not valid").Len() == 1
	})
	testsupport.WriteCertificate(t, testsupport.CertificateUntil(time.Now().Add(90*24*time.Hour), private, "localhost"), cert, key)
	testsupport.Eventually(t, "renewed certificates of the listener and for Redis are in use", func() bool {
		return len(texts()) == 3 && strings.HasPrefix(got.Notices[0].Text, "The certificate of tls.cert_file of a expired")
	})
}
