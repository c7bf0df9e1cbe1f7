package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A value of a condition is JSON, whatever notation of YAML it has.
func TestValuesOfConditionsOnBodies(t *testing.T) {
	const file = `
ssps: [{name: a, endpoints: ["http://127.0.0.1:9000/"]}]
routes:
  - name: r
    match: {path: /, openrtb: [{path: x, in: [DEU, NO, "1", 1, 1.50, 1e3, 0x1F, 1_000, .5, true, "true", 'a"\é', 9007199254740993, ""]}, {path: user.token, not_in: [s3cret]}, {path: y, exists: false}]}
    ssps: [a]
`
	cfg := mustParse(t, file)
	want := []JSONValue{`"DEU"`, `"NO"`, `"1"`, "1", "1.50", "1e3", "31", "1000", "0.5", "true", `"true"`, `"a\"\\é"`, "9007199254740993", `""`}
	if diff := cmp.Diff(want, cfg.Routes[0].Match.OpenRTB[0].In); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	again := mustParse(t, string(cfg.YAMLWithSecrets()))
	if diff := cmp.Diff(cfg.Routes, again.Routes); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	if shown := string(cfg.YAML()); strings.Contains(shown, "s3cret") || !strings.Contains(shown, `["(hidden)"]`) || !strings.Contains(shown, `"DEU"`) {
		t.Errorf("shown as\n%s", shown)
	}
	for variable, want := range map[string]JSONValue{"FRA": `"FRA"`, "2": "2", "false": "false", `"3"`: `"3"`, "null": `"null"`} {
		cfg, _, err := Parse([]byte(file), Env{"ADBUFFER_ROUTES_R_MATCH_OPENRTB_0_IN_0": variable})
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Routes[0].Match.OpenRTB[0].In[0]; got != want {
			t.Errorf("the variable %s is the value %s, want %s", variable, got, want)
		}
	}
}
