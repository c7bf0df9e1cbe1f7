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
