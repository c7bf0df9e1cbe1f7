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
	_, _, err := Parse([]byte(file), Env{"ADBUFFER_ROUTES_R_MATCH_OPENRTB_0_IN_0": "-1e400"})
	testsupport.True(t, err != nil && strings.Contains(err.Error(), "a number below 1.8e308"), "a number that YAML cannot hold: %v", err)
}

// A value to set is any JSON, whatever notation of YAML it has.
func TestValuesToSet(t *testing.T) {
	const file = `
ssp_defaults: {set: [{path: x, value: &v {b: 1.50, "a": [yes, 'no', null, ~, "é\n\"", {}, []], "": 1e3, 7: true}}, {path: a.b, append: *v}, {path: c, default: }, {path: d, default: null}]}
ssps:
  - {name: a, endpoints: ["http://127.0.0.1:9000/"]}
  - name: b
    endpoints: ["http://127.0.0.1:9000/"]
    set:
      - path: source.schain.nodes
        append:
          sid: "${SELLER}"
          hp: ${HP}
          name: "x ${NONE:-y}"
      - {path: ext, value: {key: s3cret, list: [{api_token: [s3cret]}], partner: shown}}
      - {path: user.token, value: {a: s3cret}}
      - {path: y, value: "\u0080\uFFFE"}
      - {path: z, value: {"\u0085": " \u0085\u2028 \u0000 1"}}
      - {path: macro, value: 1}
routes: [{name: r, match: {path: /}, mode: split, ssps: [a, b]}]
`
	cfg, _, err := Parse([]byte(file), Env{"SELLER": "12\"34", "HP": "1", "ADBUFFER_SSP_DEFAULTS_SET_2_DEFAULT": `{"z": [1, 2.0], "y":"1"}`, "ADBUFFER_SSP_DEFAULTS_SET_3_DEFAULT": "word", "ADBUFFER_SSPS_B_SET_5_VALUE": `{"p": "${AUCTION_PRICE}", "\u0085": [null, true]}`})
	testsupport.NoError(t, err)
	const v = `{"b":1.50,"a":["yes","no",null,null,"é\n\"",{},[]],"":1e3,"7":true}`
	value := func(s string) *JSON { return (*JSON)(&s) }
	for i, want := range [][]Set{
		{{Path: "x", Value: value(v)}, {Path: "a.b", Append: value(v)}, {Path: "c", Default: value(`{"z":[1,2.0],"y":"1"}`)}, {Path: "d", Default: value(`"word"`)}},
		{{Path: "source.schain.nodes", Append: value(`{"sid":"12\"34","hp":1,"name":"x y"}`)}, {Path: "ext", Value: value(`{"key":"s3cret","list":[{"api_token":["s3cret"]}],"partner":"shown"}`)}, {Path: "user.token", Value: value(`{"a":"s3cret"}`)},
			{Path: "y", Value: value("\"\u0080\ufffe\"")}, {Path: "z", Value: value("{\"\u0085\":\" \u0085\\u2028 \\u0000 1\"}")}, {Path: "macro", Value: value("{\"p\":\"${AUCTION_PRICE}\",\"\u0085\":[null,true]}")}},
	} {
		testsupport.Equal(t, cmp.Diff(want, cfg.SSPs[i].Set), "", "values (-want +got):\n%s")
	}
	again := mustParse(t, string(cfg.YAMLWithSecrets()))
	testsupport.Equal(t, cmp.Diff(cfg.SSPs, again.SSPs, compareUnexported), "", "read back (-want +got):\n%s")
	shown := string(cfg.YAML())
	testsupport.True(t, !strings.Contains(shown, "s3cret") && strings.Contains(shown, `"partner": "shown"`), "shown as\n%s", shown)
	without := mustParse(t, strings.Replace(file, "${SELLER}", "1", 1)[:strings.Index(file, "ssps:\n")]+"ssps: [{name: a, endpoints: [\"http://127.0.0.1:9000/\"]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n")
	testsupport.True(t, *without.SSPs[0].Set[2].Default == "null" && *without.SSPs[0].Set[3].Default == "null", "an empty value is %s, want null", *without.SSPs[0].Set[2].Default)
}
