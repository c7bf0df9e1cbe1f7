package config

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"

	"github.com/google/go-cmp/cmp"
)

// A value of a condition is JSON, whatever notation of YAML it has.
func TestValuesOfConditionsOnBodies(t *testing.T) {
	const file = `
ssps: [{name: a, endpoints: ["http://127.0.0.1:9000/"]}]
routes:
  - name: r
    match: {path: /, openrtb: [{path: x, in: [DEU, NO, "1", 1, 1.50, 1e3, 0.25, .5, true, "true", 'a"\é', 9007199254740993, ""]}, {path: user.token, not_in: [s3cret]}, {path: y, exists: false}]}
    ssps: [a]
`
	cfg := mustParse(t, file)
	want := []JSONValue{`"DEU"`, `"NO"`, `"1"`, "1", "1.50", "1e3", "0.25", "0.5", "true", `"true"`, `"a\"\\é"`, "9007199254740993", `""`}
	testsupport.Equal(t, cmp.Diff(want, cfg.Routes[0].Match.OpenRTB[0].In), "", "values (-want +got):\n%s")
	again := mustParse(t, string(cfg.YAMLWithSecrets()))
	testsupport.Equal(t, cmp.Diff(cfg.Routes, again.Routes, compareUnexported), "", "read back (-want +got):\n%s")
	shown := string(cfg.YAML())
	testsupport.True(t, !strings.Contains(shown, "s3cret") && strings.Contains(shown, `["(hidden)"]`) && strings.Contains(shown, `"DEU"`), "shown as\n%s", shown)
	for variable, want := range map[string]JSONValue{"FRA": `"FRA"`, "2": "2", "false": "false", `"3"`: `"3"`, "null": `"null"`} {
		cfg, _, err := Parse([]byte(file), Env{"ADBUFFER_ROUTES_R_MATCH_OPENRTB_0_IN_0": variable})
		testsupport.NoError(t, err)
		testsupport.Equal(t, cfg.Routes[0].Match.OpenRTB[0].In[0], want, "the variable %[2]s is the value %[1]s", variable)
	}
}
