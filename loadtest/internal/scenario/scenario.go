// Package scenario reads load scenarios and runs them.
package scenario

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/stage"
)

// Scenario is the content of a scenario file.
type Scenario struct {
	Name     string          `yaml:"name"`
	Target   Target          `yaml:"target"`
	Adbuffer Adbuffer        `yaml:"adbuffer"`
	SSPs     []*stage.SSP    `yaml:"ssps"`
	Load     Load            `yaml:"load"`
	Requests []load.Template `yaml:"requests"`
	Expect   Expect          `yaml:"expect"`
	Changes  []Change        `yaml:"changes"`
}

// Target is the server to load: a running server, one of the scenario's SSPs, or, with neither, the
// adbuffer of the scenario.
type Target struct {
	URL    string `yaml:"url"` // http://host:port or https://host:port
	SSP    string `yaml:"ssp"` // name of an SSP
	PID    int    `yaml:"pid"` // process whose CPU and memory are measured; requires url
	CAFile string `yaml:"ca_file"`
	// Insecure accepts any certificate.
	Insecure bool `yaml:"insecure"`
}

// Adbuffer describes the adbuffer in front of the SSPs.
type Adbuffer struct {
	// Config is adbuffer's configuration as a Go template. {{url "name"}} and {{ca "name"}} insert the
	// address and the CA file of an SSP. server.listen and admin.listen should have port 0.
	Config string `yaml:"config"`
	Cores  string `yaml:"cores"` // in the syntax of taskset; "" is all
}

// Load describes how the generator sends requests.
type Load struct {
	Mode        string        `yaml:"mode"`     // open | closed
	Arrivals    string        `yaml:"arrivals"` // constant | poisson; requires mode open
	Protocol    string        `yaml:"protocol"` // http1 | http1-close | http1-pipelined | http2
	Depth       int           `yaml:"depth"`    // requests in a pipeline or streams on an HTTP/2 connection
	Connections int           `yaml:"connections"`
	Threads     int           `yaml:"threads"`
	Timeout     time.Duration `yaml:"timeout"`
	Requests    int           `yaml:"requests"` // number after which a closed loop ends
	Seed        uint64        `yaml:"seed"`
	Phases      []Phase       `yaml:"phases"`
}

// Phase is a part of the load with its own rate.
type Phase struct {
	Name   string        `yaml:"name"`
	For    time.Duration `yaml:"for"`
	Rate   *Rate         `yaml:"rate"`
	From   *Rate         `yaml:"from"`
	To     *Rate         `yaml:"to"`
	Burst  Burst         `yaml:"burst"`
	Record *bool         `yaml:"record"` // false: a warm-up
}

// Burst is a number of requests that come at once, at a fixed interval.
type Burst struct {
	Every    time.Duration `yaml:"every"`
	Requests int           `yaml:"requests"`
}

// Expect describes a successful response.
type Expect struct {
	Status []int `yaml:"status"` // empty is 200 to 299
	Echo   bool  `yaml:"echo"`   // require the request's number in X-Echo-Cb
}

// Change changes the behaviour of an SSP during the load.
type Change struct {
	At        time.Duration `yaml:"at"`
	SSP       string        `yaml:"ssp"`
	Behaviour yaml.Node     `yaml:"behaviour"` // only these keys change

	// JSON is Behaviour in the syntax of the SSP's control endpoint.
	JSON []byte `yaml:"-"`
}

// maxFile bounds the size of a scenario file.
const maxFile = 1 << 20

// ReadFile reads a scenario from a file, or from standard input for "-". Mistakes in the scenario are
// returned as Faults.
func ReadFile(name string) (*Scenario, error) {
	in := os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, errors.New("a scenario has at most 1 MiB")
	}
	return parse(data)
}

// parse parses a scenario. Its error is Faults with all mistakes.
func parse(data []byte) (*Scenario, error) {
	s := &Scenario{Name: "unnamed", Load: Load{Mode: "open", Arrivals: "constant", Protocol: "http1", Depth: 16,
		Connections: 64, Threads: 1, Timeout: 5 * time.Second}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	err := dec.Decode(s)
	if errors.Is(err, io.EOF) {
		return nil, Faults{{Path: "scenario", Rule: "is empty"}}
	}
	c := &checker{faults: decodeFaults(err)}
	if types := (*yaml.TypeError)(nil); err != nil && !errors.As(err, &types) {
		return nil, c.faults // the text is not YAML
	}
	if dec.Decode(new(yaml.Node)) == nil {
		c.fault("scenario", "holds more than one document")
	}
	if len(s.Requests) == 0 {
		s.Requests = []load.Template{{Preset: "ad"}}
	}
	for i := range s.Requests {
		stage.FillPreset(&s.Requests[i])
	}
	c.scenario(s)
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return s, nil
}
