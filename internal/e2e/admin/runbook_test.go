package admin

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/upstream"
)

// runbook returns the runbook's entries by their titles.
func runbook(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(rulesDir + "/RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	entries := make(map[string]string)
	for _, part := range strings.Split(string(b), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		if entries[title] != "" {
			t.Errorf("two entries are called %s", title)
		}
		entries[title] = text
	}
	return entries
}

func TestEachAlertAndEachOutcomeHasAnEntryInTheRunbook(t *testing.T) {
	t.Parallel()
	entries := runbook(t)
	b, err := os.ReadFile(rulesDir + "/alerts.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(b, &rules); err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			known[r.Alert] = true
			if want := "deploy/prometheus/RUNBOOK.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want || entries[r.Alert] == "" {
				t.Errorf("%s: runbook_url %q, entry %q", r.Alert, r.Annotations["runbook_url"], entries[r.Alert])
			}
		}
	}
	for o := range upstream.Outcomes {
		known[o.String()] = true
		if entries[o.String()] == "" {
			t.Errorf("the outcome %v has no entry", o)
		}
	}
	if len(known) < 40 {
		t.Errorf("%d alerts and outcomes", len(known))
	}
	for title, text := range entries {
		if !known[title] {
			t.Errorf("the entry %s belongs to no alert and no outcome", title)
		}
		for _, part := range []string{"**It means:** ", "**Look at:**\n```promql\n", "**Set:** "} {
			if !strings.Contains(text, part) {
				t.Errorf("the entry %s has no %q", title, part)
			}
		}
	}
}

// The runbook's queries name existing metrics, and its settings exist.
func TestTheRunbookNamesExistingMetricsAndSettings(t *testing.T) {
	t.Parallel()
	contract, err := os.ReadFile("../deploy/testdata/contract.txt")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := os.ReadFile("../../../config/adbuffer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`adbuffer_[a-z0-9_]+`)
	setting := regexp.MustCompile("`((?:server|admin|log|deadline|fleet|pool|timeouts|tls|headers|qps|retry|breaker|adaptive)\\.[a-z0-9_.]+)`")
	conditional := map[string]bool{ // these metrics have series only in some configurations
		"adbuffer_no_bid_reasons_total": true, "adbuffer_qps_fleet_connected": true, "adbuffer_qps_share": true,
		"adbuffer_tls_certificate_reload_successful": true, "adbuffer_tls_certificate_expiry_timestamp_seconds": true,
	}
	n := 0
	for title, text := range runbook(t) {
		for _, name := range metric.FindAllString(text, -1) {
			base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			if n++; !conditional[name] && !strings.Contains(string(contract), " "+base+"{") {
				t.Errorf("%s: there is no metric %s", title, name)
			}
		}
		for _, m := range setting.FindAllStringSubmatch(text, -1) {
			n++
			path := strings.Split(m[1], ".")
			if last := path[len(path)-1]; !regexp.MustCompile(`(?m)^\s*(- )?#?\s*` + last + `:|[{ ,]` + last + `:`).Match(keys) {
				t.Errorf("%s: there is no setting %s", title, m[1])
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d metrics and settings were found", n)
	}
}
