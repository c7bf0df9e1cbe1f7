package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// prometheusServer is a process of Debian's Prometheus. It scrapes one adbuffer every two seconds,
// since a scrape must end within that time, and evaluates the rules of deploy/prometheus every
// second.
type prometheusServer struct {
	t   testing.TB
	url string
}

type prometheusOptions struct {
	rules    string   // the folder of the rules, "" for deploy/prometheus
	features string   // features that are off by default
	settings []string // additional settings of the scrape
}

// startPrometheus runs Prometheus for the length of the test.
func startPrometheus(t testing.TB, ab *e2e.Process, o prometheusOptions) *prometheusServer {
	t.Helper()
	rules, err := filepath.Abs(cmp.Or(o.rules, rulesDir))
	testsupport.NoError(t, err)
	dir, addr := t.TempDir(), testsupport.FreeAddr(t)
	config := filepath.Join(dir, "prometheus.yml")
	testsupport.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: adbuffer, static_configs: [{targets: [%q]}]%s}
`, rules+"/*.rules.yml", ab.AdminAddr, strings.Join(append([]string{""}, o.settings...), ", ")), 0o600))
	p := &prometheusServer{t: t, url: "http://" + addr}
	cmd := exec.Command(testsupport.Needs(t, "prometheus", "prometheus"), "--config.file="+config, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+addr, "--log.level=warn", "--enable-feature="+o.features)
	testsupport.Launch(t, cmd, func(*testsupport.Daemon) bool {
		status, _ := p.get("/-/ready")
		return status == http.StatusOK
	})
	return p
}

// get sends a GET. It returns status 0 if there is no response.
func (p *prometheusServer) get(path string) (status int, body []byte) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testsupport.Patience}
	res, err := client.Get(p.url + path)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	if err != nil {
		return 0, nil
	}
	return res.StatusCode, body
}

// read decodes the data in the response to a GET.
func (p *prometheusServer) read(path string, data any) {
	p.t.Helper()
	status, body := p.get(path)
	err := json.Unmarshal(body, &struct{ Data any }{data})
	testsupport.MustTrue(p.t, err == nil && status == http.StatusOK, "%s: %d, %v: %s", path, status, err, body)
}

// all returns the current values of an expression without NaN, which is the quantile of no
// observations.
func (p *prometheusServer) all(expr string) model.Vector {
	p.t.Helper()
	var found struct{ Result model.Vector }
	p.read("/api/v1/query?query="+url.QueryEscape(expr), &found)
	return slices.DeleteFunc(found.Result, func(s *model.Sample) bool { return math.IsNaN(float64(s.Value)) })
}

// query returns the value of an expression that has one series. ok is false if it has none or
// several.
func (p *prometheusServer) query(expr string) (value float64, ok bool) {
	p.t.Helper()
	all := p.all(expr)
	if len(all) != 1 {
		return 0, false
	}
	return float64(all[0].Value), true
}

// await repeats the query until the result is one series with this value.
func (p *prometheusServer) await(expr string, want float64) {
	p.t.Helper()
	var got float64
	var ok bool
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s is %v (%v)", expr, got, ok)
		}
	}()
	testsupport.Eventually(p.t, fmt.Sprintf("%s is %v", expr, want), func() bool {
		got, ok = p.query(expr)
		return ok && got == want
	})
}

// rules returns the expressions of all rules by their names. Prometheus must have evaluated each of
// them without an error.
func (p *prometheusServer) rules() (recorded, alerts map[string]string) {
	p.t.Helper()
	recorded, alerts = map[string]string{}, map[string]string{}
	testsupport.Eventually(p.t, "every rule was evaluated", func() bool {
		var all struct {
			Groups []struct {
				Rules []struct{ Name, Query, Type, Health, LastError string }
			}
		}
		p.read("/api/v1/rules", &all)
		for _, g := range all.Groups {
			for _, r := range g.Rules {
				switch {
				case r.Health == "unknown":
					return false
				case r.Health != "ok":
					p.t.Fatalf("%s: %s", r.Name, r.LastError)
				case r.Type == "recording":
					recorded[r.Name] = r.Query
				default:
					alerts[r.Name] = r.Query
				}
			}
		}
		return len(alerts) > 0
	})
	return recorded, alerts
}
