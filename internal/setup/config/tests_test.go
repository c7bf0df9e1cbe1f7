package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"adbuffer/internal/test/testsupport"
)

func TestErrorsOfAFileOfTests(t *testing.T) {
	const head = "tests:\n  - name: a\n    request: {url: /a}\n"
	for _, row := range []struct{ text, want string }{
		{"", "tests: must have at least one test"},
		{"tests: []", "line 1, column 8: tests: must have at least one test"},
		{"[]", "must be a mapping of keys to values, not a list"},
		{head + "    expect: {rout: x}", "line 4, column 14: tests[0].expect.rout: unknown key; did you mean route?"},
		{head + "    expect: {sent: {x: {absend: [a]}}}", "line 4, column 25: tests[0].expect.sent.x.absend: unknown key; did you mean absent?"},
		{head + "    expect: {route: x}\n    metrics: 1", "line 5, column 5: tests[0].metrics: unknown key"},
		{head + "    expect: {url: x}", "line 4, column 14: tests[0].expect.url: unknown key here; there is tests[].request.url"},
		{head + "    expect: {}", "line 4, column 13: tests[0].expect: must expect something"},
		{head, "line 2, column 5: tests[0].expect: must expect something"},
		{head + "    expect: {route: }", "line 4, column 14: tests[0].expect.route: must not be empty"},
		{head + "    expect: {sent: {x: }}", "line 4, column 21: tests[0].expect.sent.x: must not be empty"},
		{head + "    expect: {sent: {x: {values: {a.b: null}}}}", "line 4, column 34: tests[0].expect.sent.x.values.a.b: must not be empty"},
		{head + "    expect: {sent: {x: {values: {a: [1]}}}}", "line 4, column 37: tests[0].expect.sent.x.values.a: must be a single value, not a list"},
		{head + "    expect: {sent: {x: {values: {a: 1, a: 2}}}}", "line 4, column 40: tests[0].expect.sent.x.values.a: written twice; first on line 4"},
		{head + "    expect: {sent: {x: {values: {a..b: 1}}}}", "line 4, column 40: tests[0].expect.sent.x.values.a..b: must be member names joined by dots, for example device.geo.country"},
		{head + "    expect: {sent: {x: {absent: [\"*\"]}}}", "line 4, column 34: tests[0].expect.sent.x.absent[0]: *: must not begin or end with *, which stands between an array and a member of its elements, for example imp.*.tagid"},
		{head + "    expect: {sent: {x: {headers: {a b: c}}}}", "line 4, column 40: tests[0].expect.sent.x.headers.\"a b\": must be a header field name: letters, digits and !#$%&'*+-.^_`|~"},
		{head + "    expect: {sent: [x]}", "line 4, column 20: tests[0].expect.sent: must be a mapping of keys to values, not a list"},
		{head + "    expect: {deadline: 245}", `line 4, column 24: tests[0].expect.deadline: 245: must be a duration with a unit, for example "80ms"`},
		{head + "    expect: {error: fill}", "line 4, column 21: tests[0].expect.error: fill: must be the word with which explain and the log name an error, such as no_route"},
		{head + "    expect: {error: lost}", "line 4, column 21: tests[0].expect.error: lost: must be the word with which explain and the log name an error, such as no_route"},
		{head + "    expect: {route: x}\n  - {name: a, request: {url: /b}, expect: {route: x}}", "line 5, column 12: tests[1].name: a: must be unique; tests[0].name has it too"},
		{"tests: [{name: a, request: {url: b, method: A B, client: x}, expect: {route: x}}]",
			"line 1, column 34: tests[0].request.url: b: must be a URL of http or https, or a path that begins with /\n" +
				"line 1, column 45: tests[0].request.method: \"A B\": must be a method, for example POST\n" +
				`line 1, column 58: tests[0].request.client: x: must be an IP address, for example "192.0.2.1"`},
		{"tests: [{name: a, request: {url: /b, headers: {A: \"b\\r\\nC: d\"}}, expect: {route: x}}]",
			`line 1, column 51: tests[0].request.headers.A: "b\r\nC:(hidden)": must not hold control characters or broken UTF-8`},
		{"tests: [{name: a, request: {url: /b, body: x, body_file: y}, expect: {route: x}}]", "line 1, column 58: tests[0].request.body_file: y: and body exclude each other"},
		{"tests: [{expect: {route: x}}]", "line 1, column 9: tests[0].name: must be set\nline 1, column 9: tests[0].request.url: must be set"},
		{"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ntests: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]",
			"aliases expand to more than 100000 values, or an anchor holds itself"},
		{"tests: &t [*t]", "aliases expand to more than 100000 values, or an anchor holds itself"},
		{"tests: " + strings.Repeat("[", 20_000), "not YAML: line 1"},
		{"tests: # " + strings.Repeat("x", 1<<20), "the file must not be larger than 1048576 bytes"},
	} {
		_, err := ParseTests([]byte(row.text))
		var errs Errors
		testsupport.True(t, errors.As(err, &errs) && (err.Error() == row.want || strings.HasPrefix(row.want, "not YAML") && len(errs) == 1), "%.300s\ngot  %v\nwant %s", row.text, err, row.want)
	}
}

// A body is taken as it is written: it may have macros of OpenRTB, line breaks and any length.
func TestTheBodyOfATestIsTakenAsItIs(t *testing.T) {
	long := strings.Repeat("x", 5000)
	tests, err := ParseTests([]byte("tests:\n  - name: a\n    request:\n      url: /a\n      body: |\n        {\"a\":\"${AUCTION_PRICE}\",\n        \"b\":\"" + long + "\"}\n    expect: {ssps: []}\n"))
	testsupport.NoError(t, err)
	testsupport.Equal(t, tests.Tests[0].Request.Body, "{\"a\":\"${AUCTION_PRICE}\",\n\"b\":\""+long+"\"}\n", "%.80q")
	testsupport.True(t, tests.Tests[0].Expect.SSPs != nil, "an expectation of no SSPs is absent")
}

func TestAFileOfTestsIsNamedInItsErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.test.yaml")
	testsupport.NoError(t, os.WriteFile(file, []byte("tests: []\n"), 0o600))
	_, err := LoadTests(file)
	testsupport.True(t, err != nil && err.Error() == file+":1:8: tests: must have at least one test", "%v", err)
	_, err = LoadTests(file + ".none")
	testsupport.True(t, errors.Is(err, os.ErrNotExist), "%v", err)
}
