package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

// The report names each expectation of testdata/wrong.test.yaml that does not hold, and no other one; those of the
// tests whose names end in "right" hold.
func TestEachExpectationThatDoesNotHoldIsReported(t *testing.T) {
	want, err := os.ReadFile("testdata/wrong.txt")
	testsupport.NoError(t, err)
	out, log, code := runHere(t, "test", "testdata/wrong.test.yaml")
	testsupport.Equal(t, code, exitFailed, "exit status %d")
	testsupport.Equal(t, out+log, string(want), "%s")
	testsupport.True(t, !strings.Contains(log, "s3cret"), "a secret is in the report")

	out, log, code = runHere(t, "test", "testdata/wrong.test.yaml", "--run", "^ready$", "--json")
	var res tested
	testsupport.NoError(t, json.Unmarshal([]byte(out), &res))
	failure := testFailure{Line: 78, Column: 32, Name: "ready", Key: "route", Expected: "one", Got: "no route"}
	testsupport.True(t, code == exitFailed && log == "" && res.Tests == 1 && res.Failed == 1 && res.Config == "testdata/wrong.yaml" && slices.Equal(res.Failures, []testFailure{failure}), "exit status %d: %s%s", code, log, out)

	out, log, code = runHere(t, "test", "testdata/wrong.test.yaml", "--run", "right$")
	testsupport.True(t, code == exitOK && log == "" && out == "# testdata/wrong.test.yaml: 3 tests, 0 failed\n", "exit status %d: %s%s", code, log, out)
}

// inFolderOfConfigs has the certificate that edge.yaml names in the working directory, and returns the folder of the
// shipped configurations.
func inFolderOfConfigs(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../config")
	testsupport.NoError(t, err)
	t.Chdir(t.TempDir())
	testsupport.WriteCertificate(t, testsupport.Certificate(), "cert.pem", "cert.key")
	return dir
}

func TestTheShippedConfigurationsPassTheirTests(t *testing.T) {
	dir := inFolderOfConfigs(t)
	files, err := filepath.Glob(filepath.Join(dir, "*.test.yaml"))
	testsupport.MustTrue(t, err == nil && len(files) == 5, "%v, %v", files, err)
	for _, file := range files {
		out, log, code := runHere(t, "test", file)
		testsupport.True(t, code == exitOK && strings.HasSuffix(out, " 0 failed\n"), "exit status %d: %s%s", code, out, log)
	}
}

// An operator breaks a shipped configuration by one change.
func TestTheTestsOfTheShippedConfigurationsFindMistakes(t *testing.T) {
	dir := inFolderOfConfigs(t)
	for _, row := range []struct{ name, config, old, new, want string }{
		{"a route before another", "openrtb", "  - name: no-consent\n    match:\n      path: /openrtb2/auction\n      openrtb:", "  - {name: all, match: {path: /openrtb2/auction}, ssps: [europe]}\n  - name: no-consent\n    match:\n      path: /openrtb2/auction\n      openrtb:", "route: expected auction, got all"},
		{"a condition", "openrtb", "in: [CAN, USA]", "in: [CAN]", "ssps: expected america, display, contextual, got display, contextual; america: device.geo.country must be in [\"CAN\"], but it is \"USA\""},
		{"a condition turned round", "openrtb", "{path: regs.coppa, not_in: [1]}", "{path: regs.coppa, in: [1]}", "filtered.video: expected regs.coppa, got a request"},
		{"another vendor", "openrtb", "vendor: 76", "vendor: 77", "europe: tcf must allow vendor 77, purposes [1 2 7] with consent, purposes [10] with legitimate interest, but vendor 77 has no consent"},
		{"a removal", "openrtb", "- {path: device.ifa,", "- {path: device.dpidsha1,", "sent.america.absent[0]: expected no device.ifa, got \"a-b\""},
		{"privacy", "openrtb", "    privacy: truncate_ip\n", "", "sent.contextual.values.device.ip: expected \"203.0.113.0\", got \"203.0.113.9\""},
		{"an SSP less", "adbuffer", "      - openx\n      - {name: rubicon, when", "      - {name: rubicon, when", "ssps: expected openx, rubicon, got rubicon; openx: no request: route auction has no such SSP"},
		{"a shorter deadline", "adbuffer", "default: 300ms", "default: 100ms", "deadline: expected 295ms, got 95ms from deadline.default"},
		{"a field that passes", "adbuffer", "pass: [Authorization]", "pass: [Cookie]", "sent.openx.headers.Authorization: expected (hidden), got no such field"},
		{"a trusted peer", "edge", "trusted_proxies: []", "trusted_proxies: [203.0.113.0/24]", "sent.openx.headers.X-Forwarded-For: expected 203.0.113.0, got 198.51.100.0"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, row.config+".yaml"))
		testsupport.NoError(t, err)
		broken := strings.Replace(string(text), row.old, row.new, 1)
		testsupport.True(t, broken != string(text), "%s: %s.yaml does not have %q", row.name, row.config, row.old)
		_, log, code := runHere(t, "test", filepath.Join(dir, row.config+".test.yaml"), "--config", writeFile(t, broken))
		testsupport.True(t, code == exitFailed && strings.Contains(log, row.want), "%s: exit status %d:\n%s", row.name, code, log)
	}
}

func TestFilesOfTestsThatCannotBeRun(t *testing.T) {
	config := writeFile(t, "ssps: [{name: a, endpoints: [\"http://192.0.2.1/\"]}]\nroutes: [{name: r, match: {path: \"/*\"}, ssps: [a]}]\n")
	large := filepath.Join(t.TempDir(), "large")
	testsupport.NoError(t, os.WriteFile(large, nil, 0o600))
	testsupport.NoError(t, os.Truncate(large, 1<<30))
	one := func(request string) string {
		return writeFile(t, "tests: [{name: a, request: {url: /"+request+"}, expect: {route: r}}]\n")
	}
	for _, row := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{one("")}, exitOK, ""},
		{[]string{one(", body_file: none")}, exitFailed, ":1:48: a: request.body_file: expected a body, got "},
		{[]string{one(", body_file: .")}, exitFailed, "must be a regular file"},
		{[]string{one(", body_file: /dev/zero")}, exitFailed, "must be a regular file"},
		{[]string{one(", body_file: " + large)}, exitFailed, "must not be larger than 16777216 bytes"},
		{[]string{one(", bdy: x")}, exitFailed, ":1:37: tests[0].request.bdy: unknown key; did you mean body?\n"},
		{[]string{large}, exitFailed, ":1:1: the file must not be larger than 1048576 bytes\n"},
		{[]string{filepath.Dir(large)}, exitFailed, "is a directory"},
		{[]string{one(""), "--config", large + ".none"}, exitFailed, "no such file"},
		{[]string{one(""), "--config", one("")}, exitFailed, "unknown key"},
		{[]string{one(""), "--run", "b"}, exitFailed, "has no test whose name matches \"b\""},
		{[]string{one(""), "--run", "("}, exitUsage, "--run: "},
		{[]string{one(""), "--config", ""}, exitUsage, "no configuration: "},
		{nil, exitUsage, "accepts 1 arg"},
		{[]string{"a", "b"}, exitUsage, "accepts 1 arg"},
	} {
		args := append([]string{"test", "--config", config}, row.args...)
		_, log, code := runHere(t, args...)
		testsupport.True(t, code == row.code && strings.Contains(log, row.want), "%q: exit status %d, want %d with %q: %s", row.args, code, row.code, row.want, log)
	}
	out, log, code := runHere(t, "test", one(", bdy: x"), "--json")
	var res tested
	testsupport.NoError(t, json.Unmarshal([]byte(out), &res))
	testsupport.True(t, code == exitFailed && log == "" && len(res.Faults) == 1 && res.Faults[0].Column == 37, "exit status %d: %s%s", code, out, log)
}
