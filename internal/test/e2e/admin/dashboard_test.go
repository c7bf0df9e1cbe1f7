package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"

	"github.com/prometheus/common/model"
)

// dashboardQueries returns the expressions of deploy/grafana, by panel, as
// Grafana would send them.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../../../../deploy/grafana/adbuffer.json")
	testsupport.NoError(t, err)
	var d struct {
		Panels []struct {
			Type, Title, Description, Repeat string
			Targets                          []struct{ Expr, RefID string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	testsupport.NoError(t, json.Unmarshal(b, &d))
	fill := []string{"$__rate_interval", "10s"}
	for _, v := range d.Templating.List {
		fill = append(fill, "$"+v.Name, ".*")
	}
	queries := map[string]string{}
	repeats := false
	for _, p := range d.Panels {
		repeats = repeats || p.Type == "row" && p.Repeat == "ssp"
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("the panel %q has no description, or no query", p.Title)
		}
		for _, q := range p.Targets {
			queries[fmt.Sprintf("%s, %s", p.Title, q.RefID)] = strings.NewReplacer(fill...).Replace(q.Expr)
		}
	}
	testsupport.True(t, repeats && len(queries) >= 30, "%d queries, a row for each SSP: %v", len(queries), repeats)
	return queries
}

var (
	metricName = regexp.MustCompile(`\b(\w+:)?adbuffer_[\w:]+|\bup\b`)
	// These metrics change only with the configuration, the binary or the machines, after 15 minutes, or with
	// the resolver, the log's reader, too little CPU, and segments of different rates.
	constant = regexp.MustCompile(`_limit$|^adbuffer_build_info$|^adbuffer_config_|^adbuffer_qps_fleet_connected$|^adbuffer_tls_certificate_|^up$` +
		`|^adbuffer_ssp_client_certificate_|^adbuffer_dns_failing_names$|^adbuffer_log_dropped_total$|^adbuffer_limit_refused_total$|^adbuffer_memory_limit_bytes$` +
		`|^adbuffer_shape_(explore|threshold)_ratio$|^adbuffer_overload_|^adbuffer_cgroup_throttled_|^adbuffer_cpu_pressure_`)
	// The right side of an alert's comparison: all text from the first comparison on.
	comparison  = regexp.MustCompile(`(?s)\s*(==|!=|[<>]=?)\s.*`)
	inSelector  = regexp.MustCompile(`\{[^}]*\}`)
	ofHistogram = regexp.MustCompile(`_(bucket|sum|count)$`) // in the name of a series
	offset      = regexp.MustCompile(`offset \d+[hd]`)
)

// queriesOf returns every expression of dashboard and rules. For an alert it returns the compared
// value, with five seconds ago in place of yesterday.
func queriesOf(t *testing.T, p *prometheusServer) map[string]string {
	t.Helper()
	all := dashboardQueries(t)
	recorded, alerts := p.rules()
	for name, expr := range recorded {
		all["recording "+name] = expr
	}
	for name, expr := range alerts {
		// The test would take "offset" for a part of the comparison's right side.
		left := comparison.ReplaceAllString(inSelector.ReplaceAllStringFunc(expr, func(s string) string {
			return strings.NewReplacer("=", "\x00", "!", "\x01").Replace(s)
		}), "")
		left = strings.NewReplacer("\x00", "=", "\x01", "!").Replace(left)
		for strings.Count(left, "(") > strings.Count(left, ")") {
			left += ")"
		}
		all["alert "+name] = offset.ReplaceAllString(left, "offset 5s")
		for i, name2 := range metricName.FindAllString(expr, -1) {
			all[fmt.Sprintf("alert %s, metric %d", name, i+1)] = name2
		}
	}
	for name, expr := range all {
		testsupport.True(t, !strings.Contains(expr, "vector(") && !strings.Contains(expr, "absent("), "%s computes values without a metric: %s", name, expr)
	}
	return all
}

// startBusy starts adbuffer with SSPs that together change every metric.
func startBusy(t *testing.T) *e2e.Process {
	t.Helper()
	latency := sspsim.Behaviour{Latency: sspsim.Constant(20 * time.Millisecond)}
	tight, piped := e2e.SSPWith(t, latency), e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond)})
	h2 := e2e.StartSSP(t, sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: sspsim.Behaviour{Latency: sspsim.Lognormal(10*time.Millisecond, 100*time.Millisecond)}})
	broken := e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}})
	quits := e2e.SSPWith(t, sspsim.Behaviour{Connections: sspsim.Connections{IdleTimeout: sspsim.Duration(150 * time.Millisecond)}})
	nobid := e2e.SSPWith(t, sspsim.Behaviour{
		Response: sspsim.Response{NoBid: sspsim.Always},
		Faults:   sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Every(10), Code: 429, RetryAfter: sspsim.Duration(time.Second)}}, // ignored
	})
	return e2e.Start(t, fmt.Sprintf(`
fleet: {redis: {address: %q}, expected_replicas: 1}
ssps:
  - {name: tight, endpoints: [%q], pool: {max_conns: 4, max_pending: 2, pending_timeout: 15ms}}
  - {name: h2, endpoints: [%q], tls: {ca_file: %q}, hedge: {enabled: true, quantile: 0.7}}
  - {name: piped, endpoints: [%q], protocol: http1-pipelined, pool: {max_conns: 1, pipeline_methods: all}, qps: {shape: {keys: ["query:n"], max_loss: 0.5}}}
  - {name: broken, endpoints: [%q], breaker: {min_requests: 5, window: 1m}}
  - {name: quits, endpoints: [%q], qps: {limit: 20, scope: fleet}}
  - {name: nobid, endpoints: [%q]}
  - {name: pair, when: [{tcf: {vendor: 76}}], endpoints: [%q, %q], ejection: {base_time: 1s}, breaker: {enabled: false}}
  - {name: dead, endpoints: ["http://%s/bid"], retry: {max: 3}, breaker: {enabled: false}}
routes:
  - name: unreadable  # bodies of blanks match no condition, and go on to the next route
    match: {path: /noad, openrtb: [{path: id, exists: true}]}
    ssps: [broken]
  - name: noad
    match: {path: /noad}
    ssps: [broken]
    on_error: no_ad
  - name: default
    match: {path: /fillbuffer}
    ssps: [tight, h2, piped, broken, quits, nobid, pair, dead]
    client_choice: true
`, testsupport.StartRedis(t).Addr, tight.URL(), h2.URL(), e2e.CAFile(t, h2), piped.URL(), broken.URL(), quits.URL(), nobid.URL(), broken.URL(), tight.URL(), testsupport.FreeAddr(t)))
}

// beside makes Prometheus also scrape a second adbuffer, for metrics that do not change on the
// first.
func beside(t *testing.T, other *e2e.Process) (setting string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "targets.json")
	testsupport.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `[{"targets": [%q]}]`, other.AdminAddr), 0o600))
	return fmt.Sprintf("file_sd_configs: [{files: [%q]}]", file)
}

// Under load, the result of every query of dashboard and rules changes. It has the label ssp or
// route if its metric has one.
func TestEveryQueryOfDashboardAndRulesHasChangingResults(t *testing.T) {
	t.Parallel()
	ab := startBusy(t)
	files := e2e.NewAuthority(t)
	withTLS := e2e.Start(t, files.ServerSection("")+e2e.Single("https://localhost:9/", files.SSPSection()))
	p := startPrometheus(t, ab, prometheusOptions{settings: []string{beside(t, withTLS)}})
	testsupport.Eventually(t, "Prometheus has scraped every SSP three times", func() bool {
		got := p.all("count_over_time(adbuffer_pool_connections_limit[1m]) >= 3")
		return len(got) == 9
	})
	queries := queriesOf(t, p)
	labelled := map[string]map[string]bool{}
	testsupport.Eventually(t, "Prometheus has metrics with labels", func() bool { // none if the last scrape failed
		for _, label := range []string{"ssp", "route"} {
			labelled[label] = map[string]bool{}
			for _, s := range p.all(fmt.Sprintf(`count by (__name__) ({%s!=""})`, label)) {
				labelled[label][ofHistogram.ReplaceAllString(string(s.Metric[model.MetricNameLabel]), "")] = true
			}
		}
		return len(labelled["ssp"]) >= 30 && len(labelled["route"]) >= 3
	})
	atRest := map[string]model.Vector{}
	for name, expr := range queries {
		atRest[name] = p.all(expr)
	}

	for _, y := range []*e2e.Traffic{
		ab.StartTraffic(10, time.Millisecond, "POST /fillbuffer/tight?n="),
		ab.StartTraffic(12, 10*time.Millisecond, "/fillbuffer/h2?n=", "POST /fillbuffer/piped?n=", "POST /fillbuffer/broken?n=", "POST /fillbuffer/nobid?n=", "/fillbuffer/pair?n=", "POST /noad?n="),
		ab.StartTraffic(2, 50*time.Millisecond, "/fillbuffer/dead?n="),
		ab.StartTraffic(8, 250*time.Millisecond, "/fillbuffer/quits?n="),
	} {
		defer y.Stop()
	}

	left := maps.Clone(queries)
	why := map[string]string{}
	for end := time.Now().Add(testsupport.Patience); len(left) > 0 && time.Now().Before(end); time.Sleep(time.Second) {
		ab.Get("/fillbuffer/h2?n=0") // over a connection for one request
		for name, expr := range left {
			why[name] = wrongWith(expr, atRest[name], p.all(expr), labelled)
			if why[name] == "" {
				delete(left, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("%s: %s\n\t%s", name, why[name], queries[name])
	}
	t.Logf("%d queries", len(queries))

	// plan names the pool that is too small.
	from := "http://" + ab.AdminAddr
	var out string
	for end := time.Now().Add(testsupport.Patience); ; time.Sleep(time.Second) { // on a slow machine the traffic may pause for a while
		var stderr string
		var code int
		out, stderr, code = e2e.Run(t, nil, "plan", "--admin", from, "--ssp", "tight")
		if code == 0 && strings.Contains(out, "max_conns: ") && strings.Contains(out, "# now 4, which is too few") {
			break
		}
		testsupport.MustTrue(t, !time.Now().After(end), "plan --admin %s does not say that 4 connections are too few, exit status %d:\n%s%s", from, code, out, stderr)
	}
	if !regexp.MustCompile(`(?m)^tight .*\bhttp1\b.*\b4\b`).MatchString(out) {
		t.Errorf("plan --admin %s has no row of tight's 4 connections over http1:\n%s", from, out)
	}
}

// wrongWith returns the error in a query's result, compared with the result without load.
func wrongWith(expr string, atRest, busy model.Vector, labelled map[string]map[string]bool) string {
	if len(busy) == 0 {
		return "returns nothing"
	}
	onlyConstants := true
	for _, name := range metricName.FindAllString(expr, -1) {
		onlyConstants = onlyConstants && constant.MatchString(name)
		base := ofHistogram.ReplaceAllString(name, "")
		for label, names := range labelled {
			if !names[base] && (label != "ssp" || !strings.Contains(name, "_ssp")) && (label != "route" || !strings.HasPrefix(name, "route_")) {
				continue
			}
			for _, s := range busy {
				if s.Metric[model.LabelName(label)] == "" {
					return fmt.Sprintf("%s has the label %s, but the result %v has not", name, label, s.Metric)
				}
			}
		}
	}
	if onlyConstants {
		return ""
	}
	before := map[string]model.SampleValue{}
	for _, s := range atRest {
		before[s.Metric.String()] = s.Value
	}
	for _, s := range busy {
		if v, ok := before[s.Metric.String()]; !ok || v != s.Value {
			return ""
		}
	}
	return fmt.Sprintf("does not change under load: %v", busy)
}
