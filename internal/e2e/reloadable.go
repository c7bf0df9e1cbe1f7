package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/testsupport"
)

// Messages of the log about a reload.
const (
	MsgAsked    = "reading the configuration again"
	MsgReloaded = "configuration reloaded"
	msgChanged  = "configuration changed"
	MsgRefused  = "the configuration was not reloaded; the previous one stays in force"
)

// Reloadable is an adbuffer whose configuration the test changes.
type Reloadable struct {
	*Process
	File string
}

// StartReloadable runs `adbuffer serve` with the configuration in its own directory, and waits
// until it is ready.
func StartReloadable(t testing.TB, config string, env ...string) *Reloadable {
	t.Helper()
	file := WriteConfig(t, config)
	ab := Launch(t, append(patientFor(config), env...), "serve", "--config", file)
	ab.AwaitReady()
	return &Reloadable{ab, file}
}

// Write replaces the file by another one in one step.
func (r *Reloadable) Write(config string) {
	r.T.Helper()
	replaceFile(r.T, r.File, []byte(config))
}

// Overwrite replaces the file's content in place: it is empty for a moment.
func (r *Reloadable) Overwrite(config string) {
	r.T.Helper()
	if err := os.WriteFile(r.File, []byte(config), 0o600); err != nil {
		r.T.Fatal(err)
	}
}

// ReloadResult is the response of POST /reload.
type ReloadResult struct {
	Result  string
	Hash    string
	Changes []struct{ Path, Old, New, Effect string }
	Faults  []struct{ Path, Value, Rule string }
	Error   string
}

// FaultPaths are the paths of the settings that were refused.
func (r *ReloadResult) FaultPaths() (paths []string) {
	for _, f := range r.Faults {
		paths = append(paths, f.Path)
	}
	return paths
}

// Post sends POST /reload to the admin listener.
func (r *Reloadable) Post() (status int, res *ReloadResult) {
	r.T.Helper()
	status, body := r.SendAdmin("POST", "/reload", "")
	res = new(ReloadResult)
	if err := json.Unmarshal([]byte(body), res); err != nil {
		r.T.Fatalf("POST /reload responds with %d %s: %v", status, body, err)
	}
	return status, res
}

// Take writes a configuration, which must be applied: by the file's watcher or by POST
// /reload.
func (r *Reloadable) Take(config string) {
	r.T.Helper()
	r.Write(config)
	if status, res := r.Post(); status != 200 || res.Result != "applied" && res.Result != "unchanged" {
		r.T.Fatalf("POST /reload responds with %d %+v", status, res)
	}
}

// WantLogged waits for a line with this message and these fields, name=value.
func (r *Reloadable) WantLogged(message string, fields ...string) {
	r.T.Helper()
	testsupport.Eventually(r.T, fmt.Sprintf("the log has %q with %v", message, fields), func() bool {
		return slices.ContainsFunc(r.Log.Lines(message), func(line map[string]any) bool {
			return !slices.ContainsFunc(fields, func(f string) bool {
				name, value, _ := strings.Cut(f, "=")
				return !strings.Contains(fmt.Sprint(line[name]), value)
			})
		})
	})
}

// WantChange waits for the log line about a changed setting.
func (r *Reloadable) WantChange(path, old, new, effect string) {
	r.T.Helper()
	r.WantLogged(msgChanged, "path="+path, "old="+old, "new="+new, "effect="+effect)
}

// AwaitLimit waits until the pool of openx may open n connections.
func (r *Reloadable) AwaitLimit(n float64) {
	r.T.Helper()
	r.AwaitMetric(n, "adbuffer_pool_connections_limit", "ssp=openx")
}

// WithMaxConns is a configuration with one SSP, whose pool may open n connections.
func WithMaxConns(url string, n int) string {
	return Single(url, fmt.Sprintf("pool: {max_conns: %d}", n))
}
