// Package engine reads load scenarios and carries them out: what to load, how, and
// what fails meanwhile. It holds what all load tests share: the processes they use, how
// large they are, and how their figures become a report.
package engine

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/loadtest/internal/load"
)

// Scenario is a whole file.
type Scenario struct {
	Name     string          `yaml:"name"`
	Target   Target          `yaml:"target"`
	Adbuffer Adbuffer        `yaml:"adbuffer"`
	SSPs     []*SSP          `yaml:"ssps"`
	Load     Load            `yaml:"load"`
	Requests []load.Template `yaml:"requests"`
	Expect   Expect          `yaml:"expect"`
	Changes  []Change        `yaml:"changes"`
}

// Target is what gets the load: a running server, one of the scenario's SSPs,
// or, with neither, the adbuffer that the scenario starts.
type Target struct {
	URL    string `yaml:"url"` // http://host:port or https://host:port
	SSP    string `yaml:"ssp"` // name
	PID    int    `yaml:"pid"` // of the process whose CPU and memory are measured; only with url
	CAFile string `yaml:"ca_file"`
	// Insecure takes any certificate.
	Insecure bool `yaml:"insecure"`
}

// Adbuffer is started in front of the SSPs.
type Adbuffer struct {
	// Config is adbuffer's own YAML, as a Go template: {{url "name"}} and
	// {{ca "name"}} are the address and the CA file of an SSP. server.listen and
	// admin.listen should have port 0.
	Config string `yaml:"config"`
	Cores  string `yaml:"cores"` // as of taskset; "" is all
}

// Load is how requests are sent.
type Load struct {
	Mode        string        `yaml:"mode"`     // open | closed
	Arrivals    string        `yaml:"arrivals"` // constant | poisson; open only
	Protocol    string        `yaml:"protocol"` // http1 | http1-close | http1-pipelined | http2
	Depth       int           `yaml:"depth"`    // of a pipeline; streams of an HTTP/2 connection
	Connections int           `yaml:"connections"`
	Threads     int           `yaml:"threads"`
	Timeout     time.Duration `yaml:"timeout"`
	Requests    int           `yaml:"requests"` // closed: ends after so many
	Seed        uint64        `yaml:"seed"`
	Phases      []Phase       `yaml:"phases"`
}

// Phase is a stretch of time.
type Phase struct {
	Name   string        `yaml:"name"`
	For    time.Duration `yaml:"for"`
	Rate   *Rate         `yaml:"rate"`
	From   *Rate         `yaml:"from"`
	To     *Rate         `yaml:"to"`
	Burst  Burst         `yaml:"burst"`
	Record *bool         `yaml:"record"` // false: a warm-up
}

// Burst is that many requests at once, again and again.
type Burst struct {
	Every    time.Duration `yaml:"every"`
	Requests int           `yaml:"requests"`
}

// Expect is what a response must be.
type Expect struct {
	Status []int `yaml:"status"` // empty is 200 to 299
	Echo   bool  `yaml:"echo"`   // X-Echo-Cb is the request's number
}

// Change puts another behaviour in force while the load goes on.
type Change struct {
	At        time.Duration `yaml:"at"`
	SSP       string        `yaml:"ssp"`
	Behaviour yaml.Node     `yaml:"behaviour"` // changes the keys that are there

	// JSON is Behaviour as the SSP's control endpoint takes it.
	JSON []byte `yaml:"-"`
}

// maxFile bounds a scenario.
const maxFile = 1 << 20

// ReadFile reads a file, or standard input for "-". The error is Faults where the
// file can be read.
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

// parse reads a scenario. The error is Faults with all that is wrong.
func parse(data []byte) (*Scenario, error) {
	s := &Scenario{Name: "unnamed", Load: Load{Mode: "open", Arrivals: "constant", Protocol: "http1", Depth: 16, Connections: 64, Threads: 1, Timeout: 5 * time.Second}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	err := dec.Decode(s)
	if errors.Is(err, io.EOF) {
		return nil, Faults{{Path: "scenario", Rule: "is empty"}}
	}
	c := &checker{faults: decodeFaults(err)}
	if types := (*yaml.TypeError)(nil); err != nil && !errors.As(err, &types) {
		return nil, c.faults // it is no YAML
	}
	if dec.Decode(new(yaml.Node)) == nil {
		c.fault("scenario", "holds more than one document")
	}
	if len(s.Requests) == 0 {
		s.Requests = []load.Template{{Preset: "ad"}}
	}
	for i := range s.Requests {
		fillPreset(&s.Requests[i])
	}
	c.scenario(s)
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return s, nil
}
