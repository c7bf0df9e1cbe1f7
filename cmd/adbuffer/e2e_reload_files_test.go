package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/sspsim"
)

func TestAChangeOfTheFileIsNoticed(t *testing.T) {
	t.Parallel()
	url := healthy(t).URL()
	ab := startReloadable(t, conns(url, 10))
	ab.overwrite(conns(url, 20)) // truncated, then written
	ab.awaitLimit(20)
	ab.wantLogged(msgAsked, "by=file")
	for n := 30; n <= 50; n += 10 { // another is renamed over it, as editors do
		ab.write(conns(url, n))
		ab.awaitLimit(float64(n))
	}
	if err := os.Rename(ab.file, ab.file+"~"); err != nil {
		t.Fatal(err)
	}
	ab.wantLogged(msgRefused, "error=no such file")
	ab.write(conns(url, 60))
	ab.wantChange("ssps[openx].pool.max_conns", "50", "60", "in place")
	ab.wantMetric(1, "adbuffer_config_last_reload_successful")
	reloads := len(ab.log.lines(msgReloaded))
	ab.write(conns(url, 60)) // the same again
	if err := os.Chmod(ab.file, 0o640); err != nil {
		t.Fatal(err)
	}
	ab.write(conns(url, 70))
	ab.wantChange("ssps[openx].pool.max_conns", "60", "70", "in place")
	if n := len(ab.log.lines(msgReloaded)); n != reloads+1 {
		t.Errorf("%d reloads, of which one had something to do", n-reloads)
	}
}

func TestAConfigMapIsNoticedToSwap(t *testing.T) {
	t.Parallel()
	url, volume := healthy(t).URL(), t.TempDir()
	version := func(name string, n int) {
		t.Helper()
		dir := filepath.Join(volume, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "adbuffer.yaml"), []byte(conns(url, n)), 0o600); err != nil {
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
	ab := &reloadable{launch(t, patient, "serve", "--config", file), file}
	ab.awaitReady()
	for i, name := range []string{"..2026_11_21_10_01_00.2", "..2026_11_21_10_02_00.3", "..2026_11_21_10_03_00.4"} {
		version(name, 20+i)
		ab.awaitLimit(float64(20 + i))
	}
	ab.wantLogged(msgAsked, "by=file")
}

func TestAConfigurationFromAPipeStaysInForce(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	url := healthy(t).URL()
	go os.WriteFile(pipe, []byte(conns(url, 10)), 0o600) // once
	ab := &reloadable{launch(t, patient, "serve", "--config", pipe), pipe}
	ab.awaitReady()
	if status, res := ab.post(); status != 422 || !strings.Contains(res.Error, "no regular file") {
		t.Errorf("POST /reload answers %d %+v", status, res)
	}
	ab.awaitLimit(10)
	ab.get("/fillbuffer").wantFill("openx")
}

func TestAnAuthorityThatIsReplacedIsNoticed(t *testing.T) {
	t.Parallel()
	wrong, err := sspsim.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	s := startSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := wrong.WriteFile(ca); err != nil {
		t.Fatal(err)
	}
	ab := startReloadable(t, single(s.URL(), sprintf("tls: {ca_file: %q}", ca), "pool: {dial_backoff: {min: 1ms, max: 1ms}}"))
	if a := ab.get("/fillbuffer"); a.status != 502 || !strings.Contains(a.body, "see tls.ca_file") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if err := os.WriteFile(ca, []byte("half a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}
	ab.wantLogged(msgRefused, "fault=ssps[0].tls.ca_file")
	ab.awaitMetric(0, "adbuffer_config_last_reload_successful")
	if err := s.CA().WriteFile(ca); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the SSP is believed", func() bool { return ab.get("/fillbuffer").status == 200 })
	ab.wantChange("ssps[openx].tls.ca_file", "", "", "new pool")
	ab.awaitMetric(1, "adbuffer_config_last_reload_successful")
}

// The missing file is not watched, since no configuration in force names it.
func TestWhatARefusedFileLacksMayComeLater(t *testing.T) {
	t.Parallel()
	s := startSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	ab := startReloadable(t, single(s.URL()))
	ab.write(single(s.URL(), sprintf("tls: {ca_file: %q}", ca)))
	ab.wantLogged(msgRefused, "fault=ssps[0].tls.ca_file")
	if err := s.CA().WriteFile(ca); err != nil {
		t.Fatal(err)
	}
	ab.awaitMetric(1, "adbuffer_config_last_reload_successful")
	if n := len(ab.log.lines(msgRefused)); n != 1 {
		t.Errorf("the same fault was logged %d times", n)
	}
	ab.get("/fillbuffer").wantFill("openx")
}

func TestATokenThatIsReplacedIsNoticed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	set := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("first-first-first")
	ab := startReloadable(t, single(healthy(t).URL()), "ADBUFFER_ADMIN_LISTEN=0.0.0.0:0", "ADBUFFER_ADMIN_TOKEN_FILE="+file)
	asked := func(token string) int {
		status, _ := ab.send("GET", "/pools", "", "Authorization", "Bearer "+token)
		return status
	}
	if a, b := asked("first-first-first"), asked("second-second-second"); a != 200 || b != 403 {
		t.Errorf("the tokens are answered %d and %d", a, b)
	}
	set("second-second-second")
	eventually(t, "the new token opens", func() bool { return asked("second-second-second") == 200 })
	if status := asked("first-first-first"); status != 403 {
		t.Errorf("the old token is answered %d", status)
	}
	ab.wantChange("admin.token_file", "", "", "in place")
	if strings.Contains(ab.log.String(), "second-second") {
		t.Error("the log has the token")
	}
}
