package reload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

func TestAChangeOfTheFileIsNoticed(t *testing.T) {
	t.Parallel()
	url := e2e.Healthy(t).URL()
	ab := e2e.Start(t, e2e.WithMaxConns(url, 10))
	testsupport.NoError(t, os.WriteFile(ab.File, []byte(e2e.WithMaxConns(url, 20)), 0o600)) // truncated, then written
	awaitLimit(ab, 20)
	ab.WantLogged(e2e.MsgAsked, "by=file")
	for n := 30; n <= 50; n += 10 { // another file is renamed over it, as editors do
		ab.Write(e2e.WithMaxConns(url, n))
		awaitLimit(ab, float64(n))
	}
	testsupport.NoError(t, os.Rename(ab.File, ab.File+"~"))
	ab.WantLogged(e2e.MsgRefused, "error=no such file")
	ab.Write(e2e.WithMaxConns(url, 60))
	wantChange(ab, "ssps[openx].pool.max_conns", "50", "60", "in place")
	ab.WantMetric(1, "adbuffer_config_last_reload_successful")
	reloads := len(ab.Log.Lines(e2e.MsgReloaded))
	ab.Write(e2e.WithMaxConns(url, 60)) // the same content again
	testsupport.NoError(t, os.Chmod(ab.File, 0o640))
	ab.Write(e2e.WithMaxConns(url, 70))
	wantChange(ab, "ssps[openx].pool.max_conns", "60", "70", "in place")
	testsupport.Equal(t, len(ab.Log.Lines(e2e.MsgReloaded)), reloads+1, "%d reloads, of which one changed something")
}

func TestAConfigMapIsNoticedToSwap(t *testing.T) {
	t.Parallel()
	url, volume := e2e.Healthy(t).URL(), t.TempDir()
	version := func(name string, n int) {
		t.Helper()
		dir := filepath.Join(volume, name)
		testsupport.NoError(t, os.Mkdir(dir, 0o700))
		testsupport.NoError(t, os.WriteFile(filepath.Join(dir, "adbuffer.yaml"), []byte(e2e.WithMaxConns(url, n)), 0o600))
		old, _ := os.Readlink(filepath.Join(volume, "..data"))
		testsupport.NoError(t, os.Symlink(name, filepath.Join(volume, "..data_tmp")))
		testsupport.NoError(t, os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")))
		if old != "" {
			os.RemoveAll(filepath.Join(volume, old))
		}
	}
	version("..2026_11_21_10_00_00.1", 10)
	file := filepath.Join(volume, "adbuffer.yaml")
	testsupport.NoError(t, os.Symlink("..data/adbuffer.yaml", file))
	ab := e2e.Serve(t, file, e2e.Patient()...)
	for i, name := range []string{"..2026_11_21_10_01_00.2", "..2026_11_21_10_02_00.3", "..2026_11_21_10_03_00.4"} {
		version(name, 20+i)
		awaitLimit(ab, float64(20+i))
	}
	ab.WantLogged(e2e.MsgAsked, "by=file")
}

func TestAConfigurationFromAPipeStaysInForce(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	testsupport.NoError(t, syscall.Mkfifo(pipe, 0o600))
	url := e2e.Healthy(t).URL()
	go os.WriteFile(pipe, []byte(e2e.WithMaxConns(url, 10)), 0o600) // the pipe can be read once
	ab := e2e.Serve(t, pipe, e2e.Patient()...)
	if status, res := ab.Reload(); status != 422 || !strings.Contains(res.Error, "no regular file") {
		t.Errorf("POST /reload responds with %d %+v", status, res)
	}
	awaitLimit(ab, 10)
	ab.Get("/fillbuffer").WantFill("openx")
}

func TestAnAuthorityThatIsReplacedIsNoticed(t *testing.T) {
	t.Parallel()
	wrong, err := sspsim.NewCA()
	testsupport.NoError(t, err)
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	testsupport.NoError(t, wrong.WriteFile(ca))
	ab := e2e.Start(t, e2e.Single(s.URL(), fmt.Sprintf("tls: {ca_file: %q}", ca), "pool: {dial_backoff: {min: 1ms, max: 1ms}}"))
	if a := ab.Get("/fillbuffer"); a.Status != 502 || !strings.Contains(a.Body, "see tls.ca_file") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	testsupport.NoError(t, os.WriteFile(ca, []byte("half a certifi"), 0o600))
	ab.WantLogged(e2e.MsgRefused, "fault=ssps[0].tls.ca_file")
	ab.AwaitMetric(0, "adbuffer_config_last_reload_successful")
	testsupport.NoError(t, s.CA().WriteFile(ca))
	testsupport.Eventually(t, "adbuffer accepts the SSP's certificate", func() bool { return ab.Get("/fillbuffer").Status == 200 })
	wantChange(ab, "ssps[openx].tls.ca_file", "", "", "new pool")
	ab.AwaitMetric(1, "adbuffer_config_last_reload_successful")
}

// The missing file is not watched, since the current configuration does not name it.
func TestAMissingFileOfARefusedConfigurationMayComeLater(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	ab := e2e.Start(t, e2e.Single(s.URL()))
	ab.Write(e2e.Single(s.URL(), fmt.Sprintf("tls: {ca_file: %q}", ca)))
	ab.WantLogged(e2e.MsgRefused, "fault=ssps[0].tls.ca_file")
	// An empty file would be another error.
	testsupport.NoError(t, errors.Join(s.CA().WriteFile(ca+".new"), os.Rename(ca+".new", ca)))
	ab.AwaitMetric(1, "adbuffer_config_last_reload_successful")
	testsupport.Equal(t, len(ab.Log.Lines(e2e.MsgRefused)), 1, "the same error was logged %d times")
	ab.Get("/fillbuffer").WantFill("openx")
}
