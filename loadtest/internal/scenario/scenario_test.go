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
var keysOfSSPs = regexp.MustCompile(`the keys are after_head, .*trailers, unsolicited\n`)

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
	s, err := ReadFile("testdata/good.yaml")
	testsupport.NoError(t, err)
	p := s.Plan()
	if !p.Open || !p.Poisson || p.Protocol != load.KeepAlive || p.Connections != 128 || p.Timeout != 5*time.Second {
		t.Errorf("plan %+v", p)
	}
	if len(p.Phases) != 3 || !p.Phases[0].Unrecorded || p.Phases[1].To != 1500 || p.Phases[2].From != 1500 ||
		p.Phases[2].BurstSize != 50 {
		t.Errorf("phases %+v", p.Phases)
	}
	if len(p.Templates) != 2 || p.Templates[0].Body.P50 != 1300 || p.Templates[0].Weight != 3 ||
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
		"name: x\n---\nname: y":              "more than one document",
		"target: {url: \"ftp://x\"}":         "must be http://host:port",
		"target: {url: \"http://x/a?b\"}":    "paths are those of requests",
		"target: {ssp: x}":                   "no SSP of this name",
		"adbuffer: {config: \"{{nosuch}}\"}": "nosuch",
		"load: {mode: closed, phases: [{for: 1s, rate: 1/s}]}":               "a closed loop has no rate",
		"load: {phases: [{for: 1s, rate: 1/s, record: false}]}":              "at least one must be recorded",
		"load: {connections: 2, threads: 3, phases: [{for: 1s, rate: 1/s}]}": "load.threads: 3: must be 1 to 2",
		"load: {phases: [{for: 1s, rate: -1/s}]}":                            "must be 0/s to 10000k/s",
		"load: {phases: [{for: 1s, rate: nan/s}]}":                           "must be 0/s to 10000k/s",
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
		if _, err := ReadFile(f); err != nil {
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
	f.Add([]byte("target: {url: 'http://[::1]:80'}\nload: {phases: [{for: 1s, rate: 1/s}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parse(data)
		if err != nil {
			return
		}
		if p := s.Plan(); len(p.Phases) == 0 || len(p.Templates) == 0 || p.Connections < 1 {
			t.Fatalf("plan %+v", p)
		}
	})
}
