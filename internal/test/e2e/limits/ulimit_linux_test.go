package limits

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// startWithin starts adbuffer with a limit of ulimit.
func startWithin(t *testing.T, ulimit, config string) *e2e.Process {
	t.Helper()
	file := e2e.WriteConfig(t, config)
	cmd := exec.Command("sh", "-c", ulimit+`; exec "$@"`, "sh", e2e.Binary(t), "serve", "--config", file)
	cmd.Env = append(os.Environ(), e2e.Patient()...)
	ab := e2e.LaunchCommand(t, cmd, (*e2e.Process).FindListeners)
	ab.File = file
	ab.AwaitReady()
	return ab
}

// A client that gets no descriptor hangs, so server.max_connections must respect the limit on open files.
func TestClientsAreRefusedBeforeOpenFilesRunOut(t *testing.T) {
	t.Parallel()
	const clients, limit = 300, 64
	ssp := e2e.StartGated(t, sspsim.Options{})
	ab := startWithin(t, "ulimit -n 256", e2e.Single(ssp.URL()))
	ab.WantMetric(limit, "adbuffer_client_connections_limit")
	var held [limit]*e2e.Client
	for i := range held {
		held[i] = ab.Dial()
		held[i].Send(e2e.Request("GET", "/fillbuffer", ""))
	}
	e2e.AwaitInFlight(t, ssp.SSP, limit)
	if r := ab.Get("/fillbuffer"); r.Status != 503 || !strings.Contains(r.Body, "ulimit -n") || !strings.Contains(r.Body, "server.max_connections") {
		t.Errorf("one client more gets %d %s", r.Status, r.Body)
	}
	ssp.Open()
	for _, c := range held {
		c.Read("GET").WantFill("openx")
		c.Close()
	}

	// Clients that connect at once push out those that have not sent a request yet. None of them hangs.
	var served, refused atomic.Int64
	ab.Concurrently(clients, func(w *e2e.Worker) error {
		r, err := w.Exchange("GET", "/fillbuffer", "")
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
			refused.Add(1)
		case err != nil:
			return err
		case r.Status == 200:
			served.Add(1)
		case (r.Status == 503 || r.Status == 408) && strings.Contains(r.Body, "server.max_connections"): // 408: its head arrived too slowly
			refused.Add(1)
		default:
			return fmt.Errorf("%d %s", r.Status, r.Body)
		}
		return nil
	})
	t.Logf("%d of %d clients were served, %d refused", served.Load(), clients, refused.Load())
	testsupport.True(t, served.Load() >= limit, "too few clients were served")
	m := ab.Scrape()
	for _, zero := range []string{"adbuffer_accept_errors_total", "adbuffer_pool_dial_errors_total"} {
		testsupport.Equal(t, m.Sum(zero), 0, "%[2]s is %[1]v", zero)
	}
	if n := len(ab.Log.Lines("watching the configuration")) + len(ab.Log.Lines(e2e.MsgRefused)); n > 0 {
		t.Errorf("%d messages about reloads", n)
	}
	if line, _ := ab.Log.Line("starting"); fmt.Sprint(line["max_connections"]) != "64" {
		t.Errorf("at start the log has max_connections %v", line["max_connections"])
	}
}

// wantWarning checks that one warning about a setting was logged, with these words.
func wantWarning(ab *e2e.Process, path string, words ...string) {
	ab.T.Helper()
	n := 0
	for _, line := range ab.Log.Lines("configuration") {
		if line["path"] != path {
			continue
		}
		n++
		for _, word := range words {
			if text := fmt.Sprint(line["warning"]); !strings.Contains(text, word) {
				ab.T.Errorf("the warning %q does not say %q", text, word)
			}
		}
	}
	testsupport.True(ab.T, n == 1, "%d warnings about %s, want 1", n, path)
}

// Each reload compares its settings with the machine.
func TestAReloadFitsItsLimitsToTheOpenFiles(t *testing.T) {
	t.Parallel()
	url := e2e.Healthy(t).URL()
	ab := startWithin(t, "ulimit -n 1000", "server: {max_connections: 65536}\n"+e2e.WithMaxConns(url, 300))
	ab.WantMetric(1000-128-300, "adbuffer_client_connections_limit")
	wantWarning(ab, "server.max_connections", "572", "65536", "1000 files")
	_, pools := ab.AskAdmin("/pools")
	testsupport.True(t, strings.Contains(pools, `"open_files_limit": 1000`), "plan does not learn the limit: %s", pools)
	ab.Take(e2e.WithMaxConns(url, 200))
	ab.WantMetric(1000-128-200, "adbuffer_client_connections_limit")
	ab.WantLogged("limits in force", "max_connections=672", "max_connections_from=lowered from 65536")
	ab.Take("server: {max_connections: 500}\n" + e2e.WithMaxConns(url, 200))
	ab.WantMetric(500, "adbuffer_client_connections_limit")
	ab.WantLogged("limits in force", "max_connections=500", "max_connections_from=server.max_connections")
}
