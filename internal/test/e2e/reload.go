package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"adbuffer/internal/test/testsupport"
)

// Messages of the log about a reload.
const (
	MsgAsked    = "reading the configuration again"
	MsgReloaded = "configuration reloaded"
	MsgRefused  = "the configuration was not reloaded; the previous one stays in force"
)

// Write replaces the configuration file by another one in one step.
func (ab *Process) Write(config string) {
	ab.T.Helper()
	replaceFile(ab.T, ab.File, config)
}

// ReloadResult is the response of POST /reload.
type ReloadResult struct {
	Result  string
	Hash    string
	Changes []struct{ Path, Old, New, Effect string }
	Faults  []struct{ Path, Rule string }
	Error   string
}

// Reload sends POST /reload to the admin listener.
func (ab *Process) Reload() (status int, res *ReloadResult) {
	ab.T.Helper()
	status, body := ab.SendAdmin("POST", "/reload", "")
	res = new(ReloadResult)
	err := json.Unmarshal([]byte(body), res)
	testsupport.MustTrue(ab.T, err == nil, "POST /reload responds with %d %s: %v", status, body, err)
	return status, res
}

// Take writes a configuration, which must be applied: by the file's watcher or by POST
// /reload.
func (ab *Process) Take(config string) {
	ab.T.Helper()
	ab.Write(config)
	status, res := ab.Reload()
	testsupport.MustTrue(ab.T, status == 200 && (res.Result == "applied" || res.Result == "unchanged"), "POST /reload responds with %d %+v", status, res)
}

// WantLogged waits for a line with this message and these fields, name=value.
func (ab *Process) WantLogged(message string, fields ...string) {
	ab.T.Helper()
	testsupport.Eventually(ab.T, fmt.Sprintf("the log has %q with %v", message, fields), func() bool {
		return slices.ContainsFunc(ab.Log.Lines(message), func(line map[string]any) bool {
			return !slices.ContainsFunc(fields, func(f string) bool {
				name, value, _ := strings.Cut(f, "=")
				return !strings.Contains(fmt.Sprint(line[name]), value)
			})
		})
	})
}

// WithMaxConns is a configuration with one SSP, whose pool may open n connections.
func WithMaxConns(url string, n int) string {
	return Single(url, fmt.Sprintf("pool: {max_conns: %d}", n))
}
