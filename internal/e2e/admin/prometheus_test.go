package admin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
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
	if err != nil {
		t.Fatal(err)
	}
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
	if body, err = io.ReadAll(res.Body); err != nil {
		return 0, nil
	}
	return res.StatusCode, body
}

// query returns the value of a PromQL expression that has one series. ok is false if it has none or
// several.
func (p *prometheusServer) query(expr string) (value float64, ok bool) {
	p.t.Helper()
	_, body := p.get("/api/v1/query?query=" + url.QueryEscape(expr))
	var res struct {
		Status string `json:"status"`
		Data   struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &res); err != nil || res.Status != "success" {
		p.t.Fatalf("%s: %v %s", expr, err, body)
	}
	if len(res.Data.Result) != 1 {
		return 0, false
	}
	text, _ := res.Data.Result[0].Value[1].(string)
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil
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
