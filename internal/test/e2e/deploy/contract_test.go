package deploy

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

var update = flag.Bool("update", false, "rewrite the list of the operators' contract")

const contractFile = "testdata/contract.txt"

// The list holds every config key, command, flag, outcome with its status, and metric with its labels. If one of
// them is lost, an operator's configuration, script or dashboard breaks. A new one must be added to
// the list on purpose.
func TestNothingThatOperatorsRelyOnIsLost(t *testing.T) {
	t.Parallel()
	got := slices.Concat(keys(t, "config", "adbuffer.schema.json"), keys(t, "test", "adbuffer.test.schema.json"), commands(t), metrics(t), outcomes())
	slices.Sort(got)
	got = slices.Compact(got)
	if *update {
		testsupport.NoError(t, os.WriteFile(contractFile, []byte(strings.Join(got, "\n")+"\n"), 0o644))
	}
	text, err := os.ReadFile(contractFile)
	testsupport.NoError(t, err)
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	const how = "if that is meant, run: go test ./internal/test/e2e/deploy -run OperatorsRelyOn -update"
	for _, line := range want {
		testsupport.True(t, slices.Contains(got, line), "lost: %s\n%s", line, how)
	}
	for _, line := range got {
		testsupport.True(t, slices.Contains(want, line), "new: %s\n%s", line, how)
	}
}

// Each metric has a use: the dashboard, a rule, the runbook or README names it.
func TestEachMetricIsNamedForOperators(t *testing.T) {
	t.Parallel()
	named := make(map[string]bool)
	for _, file := range []string{
		"deploy/grafana/adbuffer.json", "deploy/prometheus/alerts.rules.yml", "deploy/prometheus/recording.rules.yml",
		"deploy/prometheus/RUNBOOK.md", "README.md",
	} {
		text, err := os.ReadFile("../../../../" + file)
		testsupport.NoError(t, err)
		for _, name := range metricName.FindAllString(string(text), -1) {
			named[name] = true
			named[ofHistogram.ReplaceAllString(name, "")] = true
		}
	}
	contract, err := os.ReadFile(contractFile)
	testsupport.NoError(t, err)
	lines := metricLine.FindAllStringSubmatch(string(contract), -1)
	testsupport.AtLeast(t, len(lines), 50, "%d metrics are in the list")
	for _, line := range lines {
		testsupport.True(t, named[line[1]], "no dashboard, rule, runbook entry or README names %s: use it, or remove it", line[1])
	}
}

var (
	metricLine  = regexp.MustCompile(`(?m)^metric \w+ (adbuffer_\w+)\{`)
	metricName  = regexp.MustCompile(`\badbuffer_[a-z0-9_]+`)
	ofHistogram = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// keys lists the keys of the JSON Schema of a kind of file, which a test of package config compares with the
// types. "{}" stands for names that an operator chooses.
func keys(t *testing.T, kind, file string) (keys []string) {
	t.Helper()
	type schema struct {
		Ref          string `json:"$ref"`
		Properties   map[string]*schema
		Additional   json.RawMessage `json:"additionalProperties"` // false, or the schema of any value
		Items        *schema
		AnyOf, AllOf []*schema
		Defs         map[string]*schema `json:"$defs"`
	}
	text, err := os.ReadFile("../../../../config/" + file)
	testsupport.NoError(t, err)
	root := new(schema)
	testsupport.NoError(t, json.Unmarshal(text, root))
	var walk func(s *schema, path string)
	walk = func(s *schema, path string) {
		switch {
		case s.Ref != "":
			walk(root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")], path)
		case s.Items != nil:
			walk(s.Items, path+"[]")
		}
		for _, one := range append(s.AnyOf, s.AllOf...) {
			walk(one, path)
		}
		for name, below := range s.Properties {
			p := strings.TrimPrefix(path+"."+name, ".")
			keys = append(keys, kind+" "+p)
			walk(below, p)
		}
		if below := new(schema); json.Unmarshal(s.Additional, below) == nil {
			walk(below, path+"{}")
		}
	}
	walk(root, "")
	return keys
}

var (
	commandLine = regexp.MustCompile(`(?m)^  ([a-z]+) {2,}\S`)
	flagLine    = regexp.MustCompile(`(?m)^ +(-\w, )?--([a-z0-9-]+)( [a-z]+)?`)
)

// commands lists the help texts of the binary and of each command.
func commands(t *testing.T) (lines []string) {
	t.Helper()
	help := func(args ...string) string {
		out, stderr, code := e2e.Run(t, nil, append(args, "--help")...)
		testsupport.MustTrue(t, code == 0, "%v --help: exit status %d: %s", args, code, stderr)
		return out
	}
	_, list, _ := strings.Cut(help(), "Available Commands:")
	list, _, _ = strings.Cut(list, "\nFlags:")
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		lines = append(lines, "command "+m[1])
		_, flags, _ := strings.Cut(help(m[1]), "\nFlags:\n")
		for _, f := range flagLine.FindAllStringSubmatch(flags, -1) {
			lines = append(lines, fmt.Sprintf("flag %s %s--%s%s", m[1], f[1], f[2], f[3]))
		}
	}
	return lines
}

// outcomes lists the outcomes, and the statuses of adbuffer's own responses.
func outcomes() (lines []string) {
	for o := range exchange.Outcomes {
		line := "outcome " + o.String()
		if !o.HasResponse() {
			line += fmt.Sprint(" ", o.Row().Status)
		}
		lines = append(lines, line)
	}
	return lines
}

// openLabels have values of the configuration or the binary.
var openLabels = []string{"ssp", "endpoint", "route", "hash", "revision", "goversion"}

// metrics lists the metrics that a process exports at its start, with every option on, and the values of
// their labels.
func metrics(t *testing.T) (lines []string) {
	t.Helper()
	redis, listener := testsupport.StartRedis(t), e2e.NewAuthority(t)
	ab := e2e.Start(t, listener.ServerSection(", proxy_protocol: true, fairness: {key: client_ip}")+fmt.Sprintf(`
tracing: {endpoint: "http://%[1]s/v1/traces"}
fleet: {redis: {address: %[2]q}, expected_replicas: 1}
ssps:
  - name: openx
    endpoints: [%[3]q]
    no_bid_body: openrtb
    qps: {scope: fleet, limit: 10000, burst: 10000, shape: {keys: ["query:slot"], max_loss: 0.01}}
    hedge: {enabled: true}
  - {name: copy, endpoints: [%[3]q], when: [{tcf: {vendor: 76}}]}
  - {name: named, endpoints: ["https://localhost:9/"], %[4]s, health_check: {path: /health}, pool: {max_requests_per_conn: 1000}}
  - {name: pipelined, endpoints: [%[3]q], protocol: http1-pipelined, pool: {auto: {enabled: true}}}
routes: [{name: merged, match: {path: /merged}, mode: parallel-all, merge: openrtb, ssps: [openx]}, {name: default, match: {path: /fillbuffer}, ssps: [openx], mirror: {ssp: copy}, cors: {origins: ["*"]}}]
`, testsupport.FreeAddr(t), redis.Addr, e2e.Healthy(t).URL(), listener.SSPSection()))
	m := ab.Scrape()
	for name, typ := range m.Types {
		if !strings.HasPrefix(name, "adbuffer_") {
			continue
		}
		all := m.All(name)
		if typ == "histogram" {
			all = m.All(name + "_count")
		}
		values := make(map[string][]string)
		for _, s := range all {
			var labels []string
			delete(s.Metric, model.MetricNameLabel)
			for l, value := range s.Metric {
				labels = append(labels, string(l))
				values[string(l)] = append(values[string(l)], string(value))
			}
			slices.Sort(labels)
			lines = append(lines, fmt.Sprintf("metric %s %s{%s}", typ, name, strings.Join(labels, ",")))
		}
		for l, of := range values {
			if !slices.Contains(openLabels, l) && name != "adbuffer_build_info" {
				slices.Sort(of)
				lines = append(lines, fmt.Sprintf("values %s{%s} %s", name, l, strings.Join(slices.Compact(of), ",")))
			}
		}
	}
	return lines
}
