package config

import (
	"fmt"
	"net/netip"
	"reflect"
	"time"

	"github.com/go-viper/mapstructure/v2"
)

// Tests is the content of a file of tests: what an operator expects a configuration to do with certain requests.
// config/reference.test.yaml documents its keys.
type Tests struct {
	Config string `yaml:"config"` // the configuration's file, relative to the file of tests; "" = not named
	Tests  []Test `yaml:"tests" jsonschema:"required" empty:"must have at least one test" unique:"name"`

	report *report `yaml:"-"` // has the places of all values
}

// Test is a request, and what is expected to become of it.
type Test struct {
	Name    string      `yaml:"name" jsonschema:"required" empty:"must be set"`
	Request TestRequest `yaml:"request" jsonschema:"required"`
	Expect  Expected    `yaml:"expect" jsonschema:"required"`
}

// TestRequest is the request of a client.
type TestRequest struct {
	Method   string            `yaml:"method" form:"method"` // "" = POST with a body, else GET
	URL      string            `yaml:"url" jsonschema:"required" empty:"must be set" form:"request URL"`
	Headers  map[string]string `yaml:"headers" form:"header field"`
	Body     string            `yaml:"body" text:"any"`
	BodyFile string            `yaml:"body_file"`                  // relative to the file of tests; "" = Body is the body
	Client   netip.Addr        `yaml:"client" default:"127.0.0.1"` // the address of the client's end of the connection
}

// Expected is what is expected of a request. What is absent is not judged.
type Expected struct {
	Route    *string                `yaml:"route"` // "" = no route
	SSPs     []string               `yaml:"ssps,omitempty"`
	Filtered map[string]string      `yaml:"filtered"` // by SSP, how the line begins with which explain names the condition
	Deadline *time.Duration         `yaml:"deadline" min:"0s" max:"10m"`
	Error    *string                `yaml:"error" form:"outcome"` // "" = no error
	Sent     map[string]SentRequest `yaml:"sent"`                 // by SSP
}

// SentRequest is what is expected of the request that an SSP gets.
type SentRequest struct {
	Absent    []string             `yaml:"absent" form:"OpenRTB path"`
	Values    map[string]JSONValue `yaml:"values" form:"OpenRTB path"`
	Headers   map[string]string    `yaml:"headers" form:"header field"`
	NoHeaders []string             `yaml:"no_headers" form:"header field"`
	URL       string               `yaml:"url"`
}

// LoadTests reads the file of tests at path. The error is of type Errors, unless the file itself cannot be read.
func LoadTests(path string) (*Tests, error) {
	data, err := Read(path)
	if err != nil {
		return nil, err
	}
	tests, err := ParseTests(data)
	if list, ok := err.(Errors); ok { //nolint:errorlint // ParseTests wraps nothing
		err = list.In(path)
	}
	return tests, err
}

// ParseTests does what LoadTests does, for the content of a file. Its error is of type Errors.
func ParseTests(data []byte) (*Tests, error) {
	r := newReport()
	root, ok := r.parseYAML(data)
	if !ok {
		return nil, r.err()
	}
	tree, _ := decoder{report: r, variables: newVariables(nil), isTests: true}.value(root, testsType, "")
	if r.bad[""] {
		return nil, r.err()
	}
	t := &Tests{report: r}
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{TagName: "yaml", Result: t})
	if err == nil {
		err = d.Decode(tree)
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: mapstructure refuses checked tests: %v", err))
	}
	r.checkSection(reflect.ValueOf(t).Elem(), "")
	for i := range t.Tests {
		if q := &t.Tests[i].Request; q.Body != "" && q.BodyFile != "" {
			r.add(join(at("tests", i), "request.body_file"), q.BodyFile, "and body exclude each other")
		}
		if p := join(at("tests", i), "expect"); reflect.ValueOf(t.Tests[i].Expect).IsZero() && !r.isBadBelow(p) {
			r.add(p, nil, "must expect something")
		}
	}
	return t, r.err()
}

var testsType = reflect.TypeFor[Tests]()

// Place returns the line and the column of the value at path, such as "tests[0].expect.route", or else of the closest
// section around it.
func (t *Tests) Place(path string) (line, column int) {
	m := t.report.nearest(path)
	return m.line, m.column
}
