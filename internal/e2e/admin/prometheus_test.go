package admin

import (
	"bytes"
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
	"strconv"
	"strings"
	"syscall"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/testsupport"
)

// prometheusServer is a process of Debian's Prometheus. It scrapes one adbuffer every two seconds,
// since a scrape must end within that time, and evaluates the rules of deploy/prometheus every
// second.
type prometheusServer struct {
	t   testing.TB
	url string
}

// startPrometheus runs Prometheus for the length of the test. settings are additional settings of
// the scrape.
func startPrometheus(t testing.TB, ab *e2e.Process, settings ...string) *prometheusServer {
	t.Helper()
	return startPrometheusWith(t, ab, prometheusOptions{settings: settings})
}

type prometheusOptions struct {
	rules    string   // the folder of the rules, "" for deploy/prometheus
	features string   // features that are off by default
	settings []string // additional settings of the scrape
}

// startPrometheusWith is startPrometheus with other options.
func startPrometheusWith(t testing.TB, ab *e2e.Process, o prometheusOptions) *prometheusServer {
	t.Helper()
	rules, err := filepath.Abs(cmp.Or(o.rules, rulesDir))
	testsupport.NoError(t, err)
	dir, addr := t.TempDir(), testsupport.FreeAddr(t)
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: adbuffer, static_configs: [{targets: [%q]}]%s}
`, rules+"/*.rules.yml", ab.AdminAddr, strings.Join(append([]string{""}, o.settings...), ", ")), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(testsupport.Needs(t, "prometheus", "prometheus"), "--config.file="+config, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+addr, "--log.level=warn", "--enable-feature="+o.features)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; scripts/install prometheus", err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("Prometheus: %s", &out)
		}
	})
	p := &prometheusServer{t: t, url: "http://" + addr}
	testsupport.Eventually(t, "Prometheus is ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("Prometheus ended: %s", &out)
		default:
		}
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

// read decodes the response to a GET.
func (p *prometheusServer) read(path string, v any) {
	p.t.Helper()
	status, body := p.get(path)
	if err := json.Unmarshal(body, v); err != nil || status != http.StatusOK {
		p.t.Fatalf("%s: %d, %v: %s", path, status, err, body)
	}
}

// sample is one series of a result.
type sample struct {
	labels map[string]string
	value  float64
}

// all returns the current values of an expression without NaN, which is the quantile of no
// observations.
func (p *prometheusServer) all(expr string) (samples []sample) {
	p.t.Helper()
	var v struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	p.read("/api/v1/query?query="+url.QueryEscape(expr), &v)
	for _, r := range v.Data.Result {
		if n, err := strconv.ParseFloat(r.Value[1].(string), 64); err == nil && !math.IsNaN(n) {
			samples = append(samples, sample{r.Metric, n})
		}
	}
	return samples
}

// query returns the value of an expression that has one series. ok is false if it has none or
// several.
func (p *prometheusServer) query(expr string) (value float64, ok bool) {
	p.t.Helper()
	all := p.all(expr)
	if len(all) != 1 {
		return 0, false
	}
	return all[0].value, true
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
		var v struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Query, Type, Health, LastError string }
				}
			}
		}
		p.read("/api/v1/rules", &v)
		for _, g := range v.Data.Groups {
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
