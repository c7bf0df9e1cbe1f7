package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// prometheus is Debian's, a process of its own. It scrapes one adbuffer and
// evaluates the rules of deploy/prometheus every second.
type prometheus struct {
	t   testing.TB
	url string
}

// point is one series of an answer.
type point struct {
	labels map[string]string
	value  float64
}

// startPrometheus runs it for the length of the test.
func startPrometheus(t testing.TB, ab *adbuffer) *prometheus {
	t.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus")
	if err != nil {
		t.Fatal(err)
	}
	dir, addr := t.TempDir(), freeAddr(t)
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - {job_name: adbuffer, static_configs: [{targets: [%q]}]}
`, rules+"/*.rules.yml", ab.admin), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+addr, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; scripts/install prometheus", err)
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait() //nolint:errcheck // the queries tell
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("Prometheus: %s", &out)
		}
	})
	p := &prometheus{t: t, url: "http://" + addr}
	eventually(t, "Prometheus is ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("Prometheus ended: %s", &out)
		default:
		}
		status, _, err := p.get("/-/ready")
		return err == nil && status == http.StatusOK
	})
	return p
}

func (p *prometheus) get(path string) (status int, body []byte, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Get(p.url + path)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// query answers PromQL.
func (p *prometheus) query(expr string) (points []point) {
	p.t.Helper()
	_, body, err := p.get("/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		p.t.Fatal(err)
	}
	var res struct {
		Status string `json:"status"`
		Data   struct {
			Result []struct {
				Metric map[string]string  `json:"metric"`
				Value  [2]json.RawMessage `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &res); err != nil || res.Status != "success" {
		p.t.Fatalf("%s: %v %s", expr, err, body)
	}
	for _, r := range res.Data.Result {
		var text string
		json.Unmarshal(r.Value[1], &text) //nolint:errcheck // the parse below fails
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			p.t.Fatalf("%s: %v", expr, err)
		}
		points = append(points, point{r.Metric, value})
	}
	return points
}

// await asks until ok takes the answer.
func (p *prometheus) await(expr string, ok func(got []point) bool) {
	p.t.Helper()
	var got []point
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%s is %v", expr, got)
		}
	}()
	eventually(p.t, expr, func() bool {
		got = p.query(expr)
		return ok(got)
	})
}

// rules returns the expressions of the rules that it has loaded, by their names,
// and checks that all could be evaluated.
func (p *prometheus) rules() (recorded, alerts map[string]string) {
	p.t.Helper()
	recorded, alerts = map[string]string{}, map[string]string{}
	eventually(p.t, "all rules were evaluated", func() bool {
		_, body, err := p.get("/api/v1/rules")
		if err != nil {
			p.t.Fatal(err)
		}
		var res struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Type, Name, Query, Health, LastError string } `json:"rules"`
				} `json:"groups"`
			} `json:"data"`
		}
		if err := json.Unmarshal(body, &res); err != nil || len(res.Data.Groups) == 0 {
			p.t.Fatalf("rules: %v %s", err, body)
		}
		for _, g := range res.Data.Groups {
			for _, r := range g.Rules {
				switch {
				case r.Health == "unknown":
					return false
				case r.Health != "ok":
					p.t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
				case r.Type == "recording":
					recorded[r.Name] = r.Query
				default:
					alerts[r.Name] = r.Query
				}
			}
		}
		return true
	})
	return recorded, alerts
}
