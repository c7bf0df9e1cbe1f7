package config

import (
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestURLsAreShownWithoutSecrets(t *testing.T) {
	for url, want := range map[string]string{
		"":                                   "",
		"http://a.example":                   "http://a.example",
		"http://a.example/bid":               "http://a.example/bid",
		"http://a.example/bid?":              "http://a.example/bid?",
		"http://a.example/bid?v=2":           "http://a.example/bid?v=(hidden)",
		"http://a.example?v=2&key=s3cret":    "http://a.example?v=(hidden)&key=(hidden)",
		"http://a.example/?s3cret":           "http://a.example/?(hidden)",
		"http://a.example/?s3cret=":          "http://a.example/?(hidden)",
		"http://a.example/?s3cret==":         "http://a.example/?(hidden)",
		"http://a.example/?a=s3cret==&&b=/?": "http://a.example/?a=(hidden)&&b=(hidden)",
		"http://a.example/?=s3cret":          "http://a.example/?=(hidden)",
		"http://a.example/#s3cret":           "http://a.example/#(hidden)",
		"http://a.example/?a=1#s3cret":       "http://a.example/?a=(hidden)#(hidden)",
		"http://u:s3cret@a.example/b@c":      "http://(hidden)@a.example/b@c",
		"http://u:s3cret@v:s3cret@a.example": "http://(hidden)@a.example",
		"http://u:p@a.example?x=http://b@c/": "http://(hidden)@a.example?x=(hidden)",
		"127.0.0.1:8080":                     "127.0.0.1:8080",
		"unix:/run/adbuffer?x.sock":          "unix:/run/adbuffer?x.sock",
		"https://[2001:db8::1]:8443/a;b=1/c": "https://[2001:db8::1]:8443/a;b=1/c",
	} {
		testsupport.Equal(t, HideURL(url), want, "%[2]s is shown as %[1]s", url)
		testsupport.Equal(t, HideURL(HideURL(url)), want, "%[2]s, hidden twice, is shown as %[1]s", url)
	}
}

const withSecrets = `
ssps:
  - name: a
    endpoints: ["https://a.example/bid?v=s3cret&s3cret", "https://b.example/bid?v=s3cret&s3cret"]
    headers: {set: [{name: Authorization, value: "Bearer s3cret"}, {name: X-Partner, value: s3cret}, {name: X-Openrtb-Version, value: "2.6"}, {name: X-Empty, value: ""}]}
routes:
  - name: r
    match: {path: /, query: [{name: format, value: video}, {name: sig, value: s3cret}], header: [{name: X-Env, value: prod}, {name: X-Api-Key, value: s3cret}, {name: X-Auth}]}
    ssps: [a]
`

func TestTheEffectiveConfigHidesPossibleSecrets(t *testing.T) {
	cfg := mustParse(t, withSecrets)
	before := string(cfg.YAMLWithSecrets())
	shown := string(cfg.YAML())
	testsupport.True(t, !strings.Contains(shown, "s3cret"), "a secret is shown:\n%s", shown)
	for _, want := range []string{
		`"https://b.example/bid?v=(hidden)&(hidden)"`, `{name: "X-Partner", value: "(hidden)"}`,
		`{name: "X-Openrtb-Version", value: "2.6"}`, `{name: "X-Empty", value: ""}`, `{name: "format", value: "video"}`, `{name: "sig", value: "(hidden)"}`, `{name: "X-Env", value: "prod"}`,
	} {
		testsupport.True(t, strings.Contains(shown, want), "%s is not in:\n%s", want, shown)
	}
	after := string(cfg.YAMLWithSecrets())
	testsupport.True(t, after == before && strings.Count(after, "s3cret") == 8, "hiding has changed the config, or not all secrets are in it:\n%s", after)
	// This configuration would send "(hidden)" to SSPs.
	_, _, err := Parse([]byte(shown), nil)
	testsupport.True(t, err != nil && strings.Count(err.Error(), "--show-secrets") == 6, "the shown config loads: %v", err)
}

// Errors quote wrong values, but no secret in them.
func TestErrorsHidePossibleSecrets(t *testing.T) {
	ssp := func(endpoint string) string {
		return "ssps: [{name: a, endpoints: [" + endpoint + "]}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n"
	}
	with := func(settings string) string {
		return "ssps: [{name: a, endpoints: [\"http://a.example/\"], " + settings + "}]\nroutes: [{name: r, match: {path: /}, ssps: [a]}]\n"
	}
	for _, text := range []string{
		ssp(`"ftp://a.example/?key=s3cret"`), ssp(`"a.example/bid?s3cret"`), ssp(`"http:/a.example?key=s3cret"`), ssp(`"http://u:s3cret@a.example/"`), ssp(`"u:s3cret@a.example"`),
		ssp(`"http://u:pa/s3cret@a.example/"`), ssp(`"http://u:pa?s3cret@a.example/"`), ssp(`"http://a.example/#s3cret"`), ssp(`"http://a.example:0/?key=s3cret"`), ssp(`"http://a example/?key=s3cret"`),
		ssp(`"http://a.example/?k=s3cret", "http://b.example/?k=s3cret2"`), ssp(`"http://a.example/?k=s3cret", "http://a.example/?k=s3cret"`),
		ssp(`"http://a.example/?k=%zz&s3cret", "https://b.example/?k=%zz&s3cret"`), ssp(`"http://0.0.0.0/?s3cret"`), ssp(`"http://a.example/` + strings.Repeat("x", maxText) + `?s3cret"`),
		ssp(`{"http://a.example/?key=s3cret": 1}`), ssp(`!!int "http://a.example/?key=s3cret"`), ssp("*s3cret"), ssp(`"http://a.example/?key=` + "\x01" + `s3cret"`),
		with(`"http://a.example/?key=s3cret": 1`), with(`headers: {set: [{name: X-A, value: "s3cret\n"}]}`), with(`headers: {set: [{name: "X-A: s3cret", value: x}]}`),
		with(`headers: {pass: ["X-A: s3cret"]}`), with(`headers: {set: ["X-A: s3cret"]}`), with(`headers: {set: {X-A: s3cret}}`), with(`headers: {set: [{X-A: s3cret}]}`),
		with(`headers: {set: [{name: X-A, value: [s3cret]}]}`), with(`headers: {set: [{name: X-A, value: !!int s3cret}]}`), with(`headers: {set: [{name: X-A, value: *s3cret }]}`),
		"tracing: {endpoint: \"http://u:s3cret@a.example\"}\n" + with(""), "tracing: {endpoint: \"a.example?s3cret\"}\n" + with(""), "tracing: {endpoint: \"http://a.example/?s3cret#x\"}\n" + with(""), "tracing: {endpoint: \"http://a.example/?key=s3cret\"}\n" + with(""),
		"fleet: {redis: {address: \"redis://:s3cret@a.example\"}}\n" + with(""), "fleet: {redis: {address: \":s3cret@a.example:1\"}}\n" + with(""),
		strings.Replace(with(""), "path: /", `path: /, header: [{name: X-Key, value: "s3cret\u0001"}]`, 1),
		strings.Replace(with(""), "path: /", `path: /, query: [{name: key, value: "s3cret&"}]`, 1),
	} {
		_, _, err := Parse([]byte(text), nil)
		if err == nil {
			t.Errorf("no error in:\n%s", text)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v\nis the error of:\n%s", err, text)
		}
	}
	env := Env{"ADBUFFER_SSPS_A_ENDPOINTS_0": "ftp://a.example/?key=s3cret"}
	_, _, err := Parse([]byte(with("")), env)
	testsupport.True(t, err != nil && !strings.Contains(err.Error(), "s3cret") && strings.Contains(err.Error(), "ADBUFFER_SSPS_A_ENDPOINTS_0"), "of a variable: %v", err)
}
