package reload

import (
	"errors"
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

func TestAChangeOfTheFileIsNoticed(t *testing.T) {
	t.Parallel()
	url := e2e.Healthy(t).URL()
	ab := e2e.StartReloadable(t, e2e.WithMaxConns(url, 10))
	ab.Overwrite(e2e.WithMaxConns(url, 20)) // truncated, then written
	ab.AwaitLimit(20)
	ab.WantLogged(e2e.MsgAsked, "by=file")
	for n := 30; n <= 50; n += 10 { // another file is renamed over it, as editors do
		ab.Write(e2e.WithMaxConns(url, n))
		ab.AwaitLimit(float64(n))
	}
	if err := os.Rename(ab.File, ab.File+"~"); err != nil {
		t.Fatal(err)
	}
	ab.WantLogged(e2e.MsgRefused, "error=no such file")
	ab.Write(e2e.WithMaxConns(url, 60))
	ab.WantChange("ssps[openx].pool.max_conns", "50", "60", "in place")
	ab.WantMetric(1, "adbuffer_config_last_reload_successful")
	reloads := len(ab.Log.Lines(e2e.MsgReloaded))
	ab.Write(e2e.WithMaxConns(url, 60)) // the same content again
	if err := os.Chmod(ab.File, 0o640); err != nil {
		t.Fatal(err)
	}
	ab.Write(e2e.WithMaxConns(url, 70))
	ab.WantChange("ssps[openx].pool.max_conns", "60", "70", "in place")
	if n := len(ab.Log.Lines(e2e.MsgReloaded)); n != reloads+1 {
		t.Errorf("%d reloads, of which one changed something", n-reloads)
	}
}

func TestAConfigMapIsNoticedToSwap(t *testing.T) {
	t.Parallel()
	url, volume := e2e.Healthy(t).URL(), t.TempDir()
	version := func(name string, n int) {
		t.Helper()
		dir := filepath.Join(volume, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "adbuffer.yaml"), []byte(e2e.WithMaxConns(url, n)), 0o600); err != nil {
			t.Fatal(err)
		}
		old, _ := os.Readlink(filepath.Join(volume, "..data"))
		if err := os.Symlink(name, filepath.Join(volume, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")); err != nil {
			t.Fatal(err)
		}
		if old != "" {
			os.RemoveAll(filepath.Join(volume, old))
		}
	}
	version("..2026_11_21_10_00_00.1", 10)
	file := filepath.Join(volume, "adbuffer.yaml")
	if err := os.Symlink("..data/adbuffer.yaml", file); err != nil {
		t.Fatal(err)
	}
	ab := &e2e.Reloadable{Process: e2e.Launch(t, e2e.Patient(), "serve", "--config", file), File: file}
	ab.AwaitReady()
	for i, name := range []string{"..2026_11_21_10_01_00.2", "..2026_11_21_10_02_00.3", "..2026_11_21_10_03_00.4"} {
		version(name, 20+i)
		ab.AwaitLimit(float64(20 + i))
	}
	ab.WantLogged(e2e.MsgAsked, "by=file")
}

func TestAConfigurationFromAPipeStaysInForce(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	url := e2e.Healthy(t).URL()
	go os.WriteFile(pipe, []byte(e2e.WithMaxConns(url, 10)), 0o600) // the pipe can be read once
	ab := &e2e.Reloadable{Process: e2e.Launch(t, e2e.Patient(), "serve", "--config", pipe), File: pipe}
	ab.AwaitReady()
	if status, res := ab.Post(); status != 422 || !strings.Contains(res.Error, "no regular file") {
		t.Errorf("POST /reload responds with %d %+v", status, res)
	}
	ab.AwaitLimit(10)
	ab.Get("/fillbuffer").WantFill("openx")
}

func TestAnAuthorityThatIsReplacedIsNoticed(t *testing.T) {
	t.Parallel()
	wrong, err := sspsim.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := wrong.WriteFile(ca); err != nil {
		t.Fatal(err)
	}
	ab := e2e.StartReloadable(t, e2e.Single(s.URL(), fmt.Sprintf("tls: {ca_file: %q}", ca), "pool: {dial_backoff: {min: 1ms, max: 1ms}}"))
	if a := ab.Get("/fillbuffer"); a.Status != 502 || !strings.Contains(a.Body, "see tls.ca_file") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if err := os.WriteFile(ca, []byte("half a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}
	ab.WantLogged(e2e.MsgRefused, "fault=ssps[0].tls.ca_file")
	ab.AwaitMetric(0, "adbuffer_config_last_reload_successful")
	if err := s.CA().WriteFile(ca); err != nil {
		t.Fatal(err)
	}
	testsupport.Eventually(t, "adbuffer accepts the SSP's certificate", func() bool { return ab.Get("/fillbuffer").Status == 200 })
	ab.WantChange("ssps[openx].tls.ca_file", "", "", "new pool")
	ab.AwaitMetric(1, "adbuffer_config_last_reload_successful")
}

// The missing file is not watched, since the current configuration does not name it.
func TestAMissingFileOfARefusedConfigurationMayComeLater(t *testing.T) {
	t.Parallel()
	s := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	ab := e2e.StartReloadable(t, e2e.Single(s.URL()))
	ab.Write(e2e.Single(s.URL(), fmt.Sprintf("tls: {ca_file: %q}", ca)))
	ab.WantLogged(e2e.MsgRefused, "fault=ssps[0].tls.ca_file")
	// An empty file would be another error.
	if err := errors.Join(s.CA().WriteFile(ca+".new"), os.Rename(ca+".new", ca)); err != nil {
		t.Fatal(err)
	}
	ab.AwaitMetric(1, "adbuffer_config_last_reload_successful")
	if n := len(ab.Log.Lines(e2e.MsgRefused)); n != 1 {
		t.Errorf("the same error was logged %d times", n)
	}
	ab.Get("/fillbuffer").WantFill("openx")
}
