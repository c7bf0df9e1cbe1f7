package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestErrorsAreSortedByLineAndReadableByMachines(t *testing.T) {
	_, _, err := Parse([]byte(`
deadline: {header: "a b"}
server:
  max_connections: 0
  lisen: x
`), Env{"ADBUFFER_ADMIN_LISTEN": "x"})
	var errs Errors
	testsupport.MustTrue(t, errors.As(err, &errs), "got %v", err)
	got, err := json.Marshal(errs)
	testsupport.NoError(t, err)
	want := `[` + strings.Join([]string{
		`{"path":"admin.listen","value":"x","rule":"must be host:port, for example \"127.0.0.1:8080\"","env":"ADBUFFER_ADMIN_LISTEN"}`,
		`{"path":"routes","rule":"must have at least one route"}`,
		`{"path":"ssps","rule":"must have at least one SSP"}`,
		"{\"path\":\"deadline.header\",\"value\":\"\\\"a b\\\"\",\"rule\":\"must be a header field name: letters, digits and !#$%\\u0026'*+-.^_`|~\",\"line\":2,\"column\":20}",
		`{"path":"server.max_connections","value":"0","rule":"must be from 1 to 10000000","line":4,"column":20}`,
		`{"path":"server.lisen","rule":"unknown key; did you mean listen?","line":5,"column":3}`,
	}, ",") + `]`
	testsupport.True(t, string(got) == want, "got\n%s\nwant\n%s", got, want)
}

func TestLongValuesAndKeysAreCutInMessages(t *testing.T) {
	value, key := strings.Repeat("é", maxText), strings.Repeat("é", 400)
	_, _, err := Parse([]byte("server: {listen: "+value+", "+key+": 1}"+twoSSPs), nil)
	var errs Errors
	testsupport.MustTrue(t, errors.As(err, &errs) && len(errs) == 2, "got %v", err)
	cut := `"` + strings.Repeat("é", maxShown/2) + `"...`
	testsupport.True(t, errs[0].Value == cut && errs[1].Path == "server."+cut, "got\n%v", err)
}

func TestListsAreBoundedBeforeTheirElementsAreRead(t *testing.T) {
	text := "ssps:\n- &s {name: a, endpoints: [\"http://127.0.0.1:9000/\"]}\n" + strings.Repeat("- *s\n", maxItems) +
		"routes: [{name: r, match: {path: /}, ssps: [a]}]\n"
	_, _, err := Parse([]byte(text), nil)
	const want = "line 2, column 1: ssps: must not have more than 1000 elements; it has 1001"
	testsupport.True(t, err != nil && err.Error() == want, "got  %v\nwant %s", err, want)
}

func TestErrorsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 20_000 {
		text.WriteString("unknown" + strconv.Itoa(i) + ": 1\n")
	}
	_, _, err := Parse([]byte(text.String()), nil)
	var errs Errors
	if !errors.As(err, &errs) || len(errs) != maxErrors+1 || errs[0].String() != "there are more than 1000 errors; these are the first" {
		t.Errorf("%d errors, the first %v", len(errs), errs[0])
	}
}

func TestIPv4MappedRangesAreRefused(t *testing.T) {
	_, _, err := Parse([]byte(`server: {trusted_proxies: ["::ffff:10.0.0.0/104"]}`+twoSSPs), nil)
	const want = "line 1, column 28: server.trusted_proxies[0]: ::ffff:10.0.0.0/104: must be written as IPv4, because adbuffer treats the addresses of such peers as IPv4"
	testsupport.True(t, err != nil && err.Error() == want, "got  %v\nwant %s", err, want)
}

// FuzzParse checks Parse for any bytes. It returns Errors in order, each with a rule, or a config
// that equals the one from its own YAML.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{filepath.Join(configDir, "*.yaml"), "testdata/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds in %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte(twoSSPs))
	f.Add([]byte("a: &a {<<: *a}"))
	f.Add([]byte("server: &s {drain: &d {delay: 1s}, <<: [*s, *d]}"))
	f.Add([]byte("ssps: [&s {name: a, endpoints: [\"http://a\"]}, *s]\nroutes: [{name: r, match: {path: /}, ssps: [*s, a]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, _, err := Parse(data, nil)
		if err == nil {
			wantRoundTrip(t, cfg)
			return
		}
		var errs Errors
		testsupport.MustTrue(t, cfg == nil && errors.As(err, &errs) && len(errs) != 0, "config %v with error %#v", cfg, err)
		testsupport.True(t, slices.IsSortedFunc(errs, func(a, b Error) int { return a.Line - b.Line }), "not in order:\n%v", errs)
		for _, e := range errs {
			testsupport.True(t, e.Rule != "" && !strings.ContainsAny(e.String(), "\n\r\x00"), "unprintable error %#v", e)
		}
	})
}

func TestTheDirectiveOfYAML12IsAccepted(t *testing.T) {
	const text = "ssps: [{name: a, endpoints: [\"http://127.0.0.1:9000/\"]}]\nroutes: [{name: default, match: {path: /}, ssps: [a]}]\n"
	for _, top := range []string{"%YAML 1.2\n---\n", "%YAML 1.1\n---\n", "\xef\xbb\xbf%YAML\t1.2 # new\n---\n", "# ours\n\n%TAG !e! tag:e,2000:\n%YAML 1.2\r\n--- # here\n", "%YAML 1.2\n---\n# %YAML 1.2\n"} {
		testsupport.Equal(t, mustParse(t, top+text).SSPs[0].Name, "a", "%[2]q: %[1]s", top)
	}
	cfg := mustParse(t, "%YAML 1.2\n---\n"+strings.Replace(text, "name: a", `name: a, headers: {set: [{name: X-A, value: "%YAML 1.2"}]}`, 1))
	testsupport.Equal(t, cfg.SSPs[0].Headers.Set[0].Value, "%YAML 1.2", "a value is %q")
}
