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

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
)

// Scenario is a whole file.
type Scenario struct {
	Name     string    `yaml:"name"`
	Target   Target    `yaml:"target"`
	Adbuffer Adbuffer  `yaml:"adbuffer"`
	SSPs     []*SSP    `yaml:"ssps"`
	Load     Load      `yaml:"load"`
	Requests []Request `yaml:"requests"`
	Expect   Expect    `yaml:"expect"`
	Changes  []Change  `yaml:"changes"`
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

// Request is one kind of request. A preset fills in what is not given.
type Request struct {
	Name    string       `yaml:"name"`
	Preset  string       `yaml:"preset"` // ad | rtb | vast
	Weight  float64      `yaml:"weight"`
	Method  string       `yaml:"method"`
	Path    string       `yaml:"path"` // {n} is the request's number
	Headers []load.Field `yaml:"headers"`
	Body    load.Size    `yaml:"body"`
	JSON    bool         `yaml:"json"` // an OpenRTB bid request, padded to the size
	Literal string       `yaml:"literal"`
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
	s := new(Scenario)
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
	s.fill()
	c.scenario(s)
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return s, nil
}

// fill sets defaults for absent values.
func (s *Scenario) fill() {
	orString := func(to *string, v string) {
		if *to == "" {
			*to = v
		}
	}
	orInt := func(to *int, v int) {
		if *to == 0 {
			*to = v
		}
	}
	orString(&s.Name, "unnamed")
	orString(&s.Load.Mode, "open")
	orString(&s.Load.Arrivals, "constant")
	orString(&s.Load.Protocol, "http1")
	orInt(&s.Load.Depth, 16)
	orInt(&s.Load.Connections, 64)
	orInt(&s.Load.Threads, 1)
	if s.Load.Timeout == 0 {
		s.Load.Timeout = 5 * time.Second
	}
	for i := range s.SSPs {
		if s.SSPs[i] == nil {
			s.SSPs[i] = new(SSP)
		}
		orString((*string)(&s.SSPs[i].Speaks), string(sspsim.HTTP1))
	}
	if len(s.Requests) == 0 {
		s.Requests = []Request{{Preset: "ad"}}
	}
	for i := range s.Requests {
		s.Requests[i].fillPreset()
	}
}
