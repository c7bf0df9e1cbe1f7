package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// machine is the processes of the story: adbuffer and Prometheus.
type machine struct {
	dir, ssp, binary        string
	traffic, admin, queries string // host:port
	adbuffer, prometheus    *exec.Cmd
	versions                []string
	client                  http.Client
}

func newMachine(ctx context.Context, dir, ssp string) (*machine, error) {
	m := &machine{dir: dir, ssp: ssp, binary: filepath.Join(dir, "adbuffer")}
	m.client = http.Client{Timeout: 5 * time.Second}
	for _, addr := range []*string{&m.traffic, &m.admin, &m.queries} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // it only finds a free port
		*addr = l.Addr().String()
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", m.binary, "./cmd/adbuffer").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("run it in the root of the repository: %w\n%s", err, out)
	}
	version, err := exec.CommandContext(ctx, "prometheus", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%w; scripts/install prometheus", err)
	}
	first, _, _ := strings.Cut(string(version), " (")
	m.versions = []string{runtime.Version(), strings.Replace(first, ", version", "", 1), fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())}
	return m, nil
}

func (m *machine) trafficURL() string { return "http://" + m.traffic + "/fillbuffer" }

func (m *machine) config() string { return filepath.Join(m.dir, "adbuffer.yaml") }

func (m *machine) writeConfig(conns int) error {
	return os.WriteFile(m.config(), fmt.Appendf(nil, `
server: {listen: %q, drain: {delay: 0s}}
admin: {listen: %q}
log: {level: warn}
deadline: {default: 1s}
ssps:
  - {name: slowing, endpoints: [%q], pool: {max_conns: %d, max_pending: 100, pending_timeout: 250ms}}
routes:
  - {name: default, match: {path: /fillbuffer}, ssps: [slowing]}
`, m.traffic, m.admin, m.ssp, conns), 0o600)
}

func (m *machine) startAdbuffer(ctx context.Context, conns int) error {
	if err := m.writeConfig(conns); err != nil {
		return err
	}
	m.adbuffer = exec.CommandContext(ctx, m.binary, "serve", "--config", m.config())
	m.adbuffer.Stderr = os.Stderr
	if err := m.adbuffer.Start(); err != nil {
		return err
	}
	return m.await(ctx, "http://"+m.admin+"/readyz")
}

// resize sets the pool's max_conns in the running process.
func (m *machine) resize(ctx context.Context, conns int) error {
	if err := m.writeConfig(conns); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.admin+"/reload", http.NoBody)
	if err != nil {
		return err
	}
	res, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST /reload answered %s: %s", res.Status, body)
	}
	return err
}

func (m *machine) startPrometheus(ctx context.Context) error {
	rules, err := filepath.Abs("deploy/prometheus")
	if err != nil {
		return err
	}
	file := filepath.Join(m.dir, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: ["%s/*.rules.yml"]
scrape_configs: [{job_name: adbuffer, static_configs: [{targets: [%q]}]}]
`, rules, m.admin), 0o600); err != nil {
		return err
	}
	m.prometheus = exec.CommandContext(ctx, "prometheus", "--config.file", file, "--storage.tsdb.path", filepath.Join(m.dir, "data"),
		"--web.listen-address", m.queries, "--log.level=error")
	m.prometheus.Stderr = os.Stderr
	if err := m.prometheus.Start(); err != nil {
		return err
	}
	return m.await(ctx, "http://"+m.queries+"/-/ready")
}

// await waits until a URL answers 200.
func (m *machine) await(ctx context.Context, url string) error {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if res, err := m.client.Get(url); err == nil {
			res.Body.Close() //nolint:errcheck // the status is all that matters
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s does not answer", url)
}

func (m *machine) close() {
	end(&m.adbuffer)
	end(&m.prometheus)
	m.client.CloseIdleConnections()
}

func end(cmd **exec.Cmd) {
	if *cmd == nil {
		return
	}
	(*cmd).Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	(*cmd).Wait()                          //nolint:errcheck // it was told to end
	*cmd = nil
}

func (m *machine) get(url string, v any) error {
	res, err := m.client.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// firing returns the names of the alerts that fire.
func (m *machine) firing() (names []string, err error) {
	var v struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := m.get("http://"+m.queries+"/api/v1/alerts", &v); err != nil {
		return nil, err
	}
	for _, a := range v.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names, nil
}

// waited returns how many requests were lent a place that another gave back.
func (m *machine) waited() (n uint64, err error) {
	res, err := m.client.Get("http://" + m.admin + "/metrics")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(body), `adbuffer_pool_acquire_seconds_count{outcome="waited",ssp="slowing"} `)
	if !ok {
		return 0, errors.New("/metrics does not say how many requests waited")
	}
	_, err = fmt.Sscan(rest, &n)
	return n, err
}
