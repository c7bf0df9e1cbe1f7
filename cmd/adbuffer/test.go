package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"adbuffer/internal/app/app"
	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/wire/header"
)

// testFlags are the flags of test.
type testFlags struct {
	config, run string
	asJSON      bool
}

func newTest(stdout *os.File) *cobra.Command {
	f := new(testFlags)
	cmd := &cobra.Command{
		Use:   "test FILE",
		Short: "Test what a configuration would do with requests, and send nothing",
		Long: `Tests a configuration: FILE has requests, and what is expected of each of them, such as
its route, its SSPs and the body that an SSP gets. The requests are handled as explain
does, by the code that handles real requests. No SSP gets a request. Copies for mirrors
are not judged.

  tests:
    - name: children keep their identifiers to themselves
      request: {url: /openrtb2/auction, body: '{"id":"1","regs":{"coppa":1},"device":{"ifa":"a"}}'}
      expect:
        route: auction
        sent: {contextual: {absent: [device.ifa]}}

What is not in expect is not judged. config/reference.test.yaml explains every key. Paths in
FILE are relative to FILE. The configuration is that of --config, or else the one that
FILE names, or else that of $` + configVariable + `.

Reports all expectations that do not hold, each as file:line:column: test: key: what was
expected, and what came. The exit status is 0 if all hold, 1 otherwise.`,
		Example: `  adbuffer test config/openrtb.test.yaml
  adbuffer test config/openrtb.test.yaml --config new.yaml
  adbuffer test config/openrtb.test.yaml --run 'child|consent' --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: yamlFiles,
		RunE:              func(_ *cobra.Command, args []string) error { return f.test(stdout, args[0]) },
	}
	addConfigFlag(cmd, &f.config)
	cmd.Flags().StringVar(&f.run, "run", "", "run only the tests whose names match this regular expression")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

// tested is the result of a file of tests.
type tested struct {
	File   string `json:"file"`
	Config string `json:"config,omitempty"`
	Tests  int    `json:"tests"`  // how many ran
	Failed int    `json:"failed"` // how many of them failed
	// Faults are the errors of the file, or of the configuration. With a fault, no test runs.
	Faults   config.Errors `json:"faults"`
	Failures []testFailure `json:"failures"`
}

// testFailure is an expectation that does not hold.
type testFailure struct {
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Name     string `json:"name"` // of the test
	Key      string `json:"key"`  // below expect, such as "sent.openx.url", or "request.body_file"
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

func (f *testFlags) test(stdout *os.File, file string) error {
	only, err := regexp.Compile(f.run)
	if err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	res := &tested{File: file, Faults: config.Errors{}, Failures: []testFailure{}}
	err = f.runFile(res, only)
	if list, ok := errors.AsType[config.Errors](err); ok {
		res.Faults = list
	} else if err != nil {
		return err
	}
	if f.asJSON {
		err = printJSON(stdout, res)
	} else if err == nil {
		_, err = fmt.Fprintf(stdout, "# %s: %d tests, %d failed\n", file, res.Tests, res.Failed)
	}
	if err == nil && (res.Failed > 0 || len(res.Faults) > 0) {
		err = errPrinted
		if !f.asJSON {
			err = errors.New(res.failures())
		}
	}
	return failed(err)
}

// failures returns a line for each failure.
func (res *tested) failures() string {
	lines := make([]string, len(res.Failures))
	for i, f := range res.Failures {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s: %s: expected %s, got %s", res.File, f.Line, f.Column, f.Name, f.Key, f.Expected, f.Got)
	}
	return strings.Join(lines, "\n")
}

// runFile runs the tests of res.File whose names match the pattern.
func (f *testFlags) runFile(res *tested, pattern *regexp.Regexp) error {
	tests, err := config.LoadTests(res.File)
	if err != nil {
		return failed(err)
	}
	res.Config = f.config
	if res.Config == "" && tests.Config != "" {
		res.Config = relativeTo(res.File, tests.Config)
	}
	if res.Config, err = configPath(res.Config); err != nil {
		return err
	}
	cfg, _, err := config.Load(res.Config, config.OSEnv())
	if err != nil {
		return failed(err)
	}
	explainer, err := app.NewExplainer(cfg)
	if err != nil {
		return failed(err)
	}
	defer explainer.Close()
	for i := range tests.Tests {
		t := &tests.Tests[i]
		if !pattern.MatchString(t.Name) {
			continue
		}
		res.Tests++
		failures := judged(explainer, res.File, t)
		if len(failures) > 0 {
			res.Failed++
		}
		for j := range failures {
			failures[j].Name = t.Name
			failures[j].Line, failures[j].Column = tests.Place(fmt.Sprintf("tests[%d].%s", i, failures[j].Key))
			failures[j].Key = strings.TrimPrefix(failures[j].Key, "expect.")
		}
		slices.SortFunc(failures, func(a, b testFailure) int {
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		res.Failures = append(res.Failures, failures...)
	}
	if res.Tests == 0 {
		return failed(fmt.Errorf("--run: %s has no test whose name matches %q", res.File, f.run))
	}
	return nil
}

// judged returns the expectations of a test in file that do not hold. Line, column and name are not set.
func judged(explainer *app.Explainer, file string, t *config.Test) (failures []testFailure) {
	q, body := &t.Request, []byte(t.Request.Body)
	if q.BodyFile != "" {
		var err error
		body, err = configfile.Read(relativeTo(file, q.BodyFile), maxTestBody)
		if err != nil {
			return []testFailure{{Key: "request.body_file", Expected: "a body", Got: err.Error()}}
		}
	}
	method := q.Method
	if method == "" && len(body) > 0 {
		method = http.MethodPost
	}
	var fields []header.NameValue
	for _, name := range slices.Sorted(maps.Keys(q.Headers)) {
		fields = append(fields, header.NameValue{Name: name, Value: q.Headers[name]})
	}
	message, err := requestMessage(method, q.URL, fields, body)
	if err != nil {
		return []testFailure{{Key: "request.url", Expected: "a URL", Got: err.Error()}}
	}
	client := q.Client
	if !client.IsValid() {
		client = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	for _, m := range explainer.Explain(message, client).Judge(&t.Expect) {
		failures = append(failures, testFailure{Key: "expect." + m.Key, Expected: m.Expected, Got: m.Got})
	}
	return failures
}

// maxTestBody bounds the body of a request in a file.
const maxTestBody = 16 << 20

// relativeTo returns the path of a file that is named in another file.
func relativeTo(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}
