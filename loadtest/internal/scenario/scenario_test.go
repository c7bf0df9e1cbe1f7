package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/load"
)

// keysOfSSPs matches the list of keys in an error. A new key of sspsim must not break this test.
var keysOfSSPs = regexp.MustCompile(`the keys are after_head, .*trailers\n`)

func TestAllFaultsAreReportedAtOnceWithTheirLinesOrPaths(t *testing.T) {
	for _, name := range []string{"testdata/wrong-types", "testdata/wrong-values"} {
		data, err := os.ReadFile(name + ".yaml")
		testsupport.NoError(t, err)
		want, err := os.ReadFile(name + ".txt")
		testsupport.NoError(t, err)
		_, err = parse(data)
		got := keysOfSSPs.ReplaceAllString(fmt.Sprintln(err), "the keys are ...\n")
		testsupport.Equal(t, got, string(want), "%[2]s: got:\n%[1]s", name)
	}
}

func TestScenarioBecomesThePlanItSays(t *testing.T) {
	s, err := readFile("testdata/good.yaml")
	testsupport.NoError(t, err)
	p := s.plan(0.5)
	if !p.Open || !p.Poisson || p.Protocol != load.KeepAlive || p.Connections != 128 {
		t.Errorf("plan %+v", p)
	}
	if len(p.Phases) != 2 || !p.Phases[0].Unrecorded || p.Phases[1].Unrecorded || p.Phases[1].From != 1500 ||
		p.Phases[1].To != 1500 || p.Phases[1].Duration != 2500*time.Millisecond {
		t.Errorf("phases %+v", p.Phases)
	}
	if len(p.Templates) != 2 || p.Templates[0].Body.P50 != 1300 || p.Templates[0].Weight != 3 || p.Templates[0].Path != "/auction" ||
		p.Templates[1].Name != "video" || p.Templates[1].Method != "GET" {
		t.Errorf("requests %+v", p.Templates)
	}
	if b := s.SSPs[0].Behaviour; b.Latency.P99 != sspsim.Duration(250*time.Millisecond) ||
		b.Response.NoBid.Share != 0.85 {
		t.Errorf("behaviour %+v", b)
	}
	testsupport.Equal(t, string(s.Changes[0].Behaviour.JSON), `{"faults":{"stall":{"share":0.5}}}`, "change %s")
}

func TestScenariosThatAreNoneAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "scenario: EOF",
		"- a":                                "into scenario.Scenario",
		"a: [":                               "did not find expected node content",
		"name: x\nname: y":                   "already defined",
		"target: {url: \"ftp://x\"}":         "must be http://host:port",
		"target: {url: \"http://x:1/a?b\"}":  "paths are those of requests",
		"target: {url: \"http://x\"}":        "must be http://host:port",
		"adbuffer: {config: \"{{nosuch}}\"}": "nosuch",
		"load: {mode: closed, phases: [{for: 1s, per_second: 1}]}":  "a closed loop has no rate",
		"load: {phases: [{for: 1s, per_second: 1, record: false}]}": "at least one must be recorded",
		"load: {phases: [{for: 1s}]}":                               "per_second: 0: must be above 0",
		"load: {phases: [{for: 1s, per_second: .nan}]}":             "per_second: NaN: must be above 0",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestEveryScenarioShippedIsValid(t *testing.T) {
	files, err := filepath.Glob("../../scenarios/*.yaml")
	testsupport.MustTrue(t, err == nil && len(files) != 0, "no scenarios: %v", err)
	for _, f := range files {
		if _, err := readFile(f); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// FuzzParse checks that a text is refused, or becomes a plan that can be built.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/good.yaml", "testdata/wrong-types.yaml", "testdata/wrong-values.yaml"} {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("target: {url: 'http://[::1]:80'}\nload: {phases: [{for: 1s, per_second: 1}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err != nil {
			return
		}
		if p := s.plan(1); len(p.Phases) == 0 || len(p.Templates) == 0 || p.Connections < 1 {
			t.Fatalf("plan %+v", p)
		}
	})
}
