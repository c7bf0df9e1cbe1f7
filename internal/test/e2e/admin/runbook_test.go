package admin

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

// runbook returns the runbook's entries by their titles.
func runbook(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(rulesDir + "/RUNBOOK.md")
	testsupport.NoError(t, err)
	entries := make(map[string]string)
	for _, part := range strings.Split(string(b), "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		testsupport.True(t, entries[title] == "", "two entries are called %s", title)
		entries[title] = text
	}
	return entries
}

func TestEachAlertAndEachOutcomeHasAnEntryInTheRunbook(t *testing.T) {
	t.Parallel()
	entries := runbook(t)
	b, err := os.ReadFile(rulesDir + "/alerts.rules.yml")
	testsupport.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	testsupport.NoError(t, yaml.Unmarshal(b, &rules))
	known := map[string]bool{"preflight": true} // a value of the label outcome, but no outcome
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			known[r.Alert] = true
			if want := "deploy/prometheus/RUNBOOK.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want || entries[r.Alert] == "" {
				t.Errorf("%s: runbook_url %q, entry %q", r.Alert, r.Annotations["runbook_url"], entries[r.Alert])
			}
		}
	}
	for o := range exchange.Outcomes {
		known[o.String()] = true
		testsupport.True(t, entries[o.String()] != "", "the outcome %v has no entry", o)
	}
	testsupport.AtLeast(t, len(known), 40, "%d alerts and outcomes")
	for title, text := range entries {
		testsupport.True(t, known[title], "the entry %s belongs to no alert and no outcome", title)
		for _, part := range []string{"**It means:** ", "**Look at:**\n```promql\n", "**Set:** "} {
			testsupport.True(t, strings.Contains(text, part), "the entry %s has no %q", title, part)
		}
	}
}

// The queries with which the entry shaped computes the loss are tested with values.
func TestTheRunbooksQueriesOfALossAreTested(t *testing.T) {
	t.Parallel()
	tests, err := os.ReadFile(rulesDir + "/recording_rules_test.yaml")
	testsupport.NoError(t, err)
	n := 0
	for line := range strings.Lines(runbook(t)["shaped"]) {
		if strings.Contains(line, "[6h]") {
			n++
			testsupport.True(t, strings.Contains(string(tests), "- expr: "+line), "no test has the query %s", line)
		}
	}
	testsupport.Equal(t, n, 2, "%d queries of six hours")
}

// The runbook's queries name existing metrics. The settings that it and the alerts name have their
// whole path.
func TestTheRunbookNamesExistingMetricsAndSettings(t *testing.T) {
	t.Parallel()
	contract, err := os.ReadFile("../deploy/testdata/contract.txt")
	testsupport.NoError(t, err)
	alerts, err := os.ReadFile(rulesDir + "/alerts.rules.yml")
	testsupport.NoError(t, err)
	isSetting := func(path string) bool {
		for _, of := range []string{"", "ssps[].", "ssps[].endpoints[].", "routes[].", "routes[].ssps[]."} {
			if strings.Contains(string(contract), "\nconfig "+of+path+"\n") {
				return true
			}
		}
		return false
	}
	// endsSetting reports whether word is a setting's name without its path.
	endsSetting := func(word string) bool {
		return strings.Contains(word, "_") && !exchange.IsOutcome(word) && strings.Contains(string(contract), "."+word+"\n")
	}
	metric := regexp.MustCompile(`adbuffer_[a-z0-9_]+`)
	setting := regexp.MustCompile("`([a-z_]+(?:\\[\\])?(?:\\.[a-z_]+)*)[`:]")
	conditional := map[string]bool{ // these metrics have series only in some configurations
		"adbuffer_no_bid_reasons_total": true, "adbuffer_qps_fleet_connected": true, "adbuffer_qps_share": true,
		"adbuffer_tls_certificate_reload_successful": true, "adbuffer_tls_certificate_expiry_timestamp_seconds": true,
	}
	metrics, settings := 0, 0
	wantSetting := func(where, path string) {
		if settings++; !isSetting(path) {
			t.Errorf("%s: there is no setting %s", where, path)
		}
	}
	for title, text := range runbook(t) {
		for _, name := range metric.FindAllString(text, -1) {
			base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, "")
			if metrics++; !conditional[name] && !strings.Contains(string(contract), " "+base+"{") {
				t.Errorf("%s: there is no metric %s", title, name)
			}
		}
		for _, m := range setting.FindAllStringSubmatch(text, -1) {
			if path := m[1]; path != "adbuffer.yaml" && (strings.Contains(path, ".") || endsSetting(path)) {
				wantSetting(title, path)
			}
		}
	}
	for _, path := range regexp.MustCompile(`\b[a-z_]+(\.[a-z_]+)+\b`).FindAllString(string(alerts), -1) {
		if !strings.HasPrefix(path, "labels.") && !strings.HasSuffix(path, "yaml") && !strings.HasSuffix(path, ".yml") {
			wantSetting("an alert", path)
		}
	}
	testsupport.True(t, metrics >= 80 && settings >= 150, "only %d metrics and %d settings were found", metrics, settings)
}
