// Package scenario reads load scenarios and runs them.
package scenario

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
)

// Scenario is the content of a scenario file.
type Scenario struct {
	Name     string          `yaml:"name"`
	Target   Target          `yaml:"target"`
	Adbuffer Adbuffer        `yaml:"adbuffer"`
	SSPs     []SSP           `yaml:"ssps"`
	Load     Load            `yaml:"load"`
	Requests []load.Template `yaml:"requests"`
	Expect   Expect          `yaml:"expect"`
	Changes  []Change        `yaml:"changes"`
}

// Target is the server to load: a running server, one of the scenario's SSPs, or, if neither is named, the
// scenario's adbuffer.
type Target struct {
	URL    string `yaml:"url"` // http://host:port or https://host:port
	SSP    string `yaml:"ssp"` // name of an SSP
	PID    int    `yaml:"pid"` // ID of the process whose CPU and memory are measured; requires url; 0 is none
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
	// CompareWithout runs the scenario a second time, without the lines of Config that contain this text; "" does not.
	CompareWithout string `yaml:"compare_without"`
}

// SSP is a simulated SSP.
type SSP struct {
	Name      string          `yaml:"name"`
	Protocol  sspsim.Protocol `yaml:"protocol"`
	Behaviour Behaviour       `yaml:"behaviour"`
	Seed      uint64          `yaml:"seed"`
	Cores     string          `yaml:"cores"` // as in Adbuffer
}

// Load describes how the generator sends requests.
type Load struct {
	Mode        string        `yaml:"mode"`     // open | closed
	Arrivals    string        `yaml:"arrivals"` // constant | poisson; requires mode open
	Protocol    load.Protocol `yaml:"protocol"`
	Depth       int           `yaml:"depth"` // requests in a pipeline or streams on an HTTP/2 connection
	Connections int           `yaml:"connections"`
	Threads     int           `yaml:"threads"`
	Timeout     time.Duration `yaml:"timeout"`
	Requests    int           `yaml:"requests"` // number after which a closed loop ends; 0 is no such end
	Seed        uint64        `yaml:"seed"`
	Phases      []Phase       `yaml:"phases"`
}

// Phase is a part of the load with its own rate: Rate, or a ramp from From to To, or only bursts. In mode closed it has
// none of these.
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
	// Shape is what a limit that chooses what it drops must achieve; nil is nothing.
	Shape *Shape `yaml:"shape"`
}

// Change changes the behaviour of an SSP during the load.
type Change struct {
	At        time.Duration `yaml:"at"`
	SSP       string        `yaml:"ssp"`
	Behaviour Behaviour     `yaml:"behaviour"` // only these keys change
}

// ReadFile reads a scenario from a file, or from standard input for "-".
func ReadFile(name string) (*Scenario, error) {
	if name == "-" {
		name = "/dev/stdin"
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parse(data)
}

// parse parses a scenario. Its error lists all mistakes in the YAML and its types, with their lines, or else all
// violations of rules, with their paths.
func parse(data []byte) (*Scenario, error) {
	s := &Scenario{Name: "unnamed", Load: Load{Mode: "open", Arrivals: "constant", Protocol: load.KeepAlive, Depth: 16,
		Connections: 64, Threads: 1, Timeout: 5 * time.Second}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if dec.Decode(new(yaml.Node)) == nil {
		return nil, errors.New("scenario: holds more than one document")
	}
	if len(s.Requests) == 0 {
		s.Requests = []load.Template{{Preset: "ad"}}
	}
	for i := range s.SSPs {
		s.SSPs[i].Protocol = cmp.Or(s.SSPs[i].Protocol, sspsim.HTTP1)
	}
	for i := range s.Requests {
		fillPreset(&s.Requests[i])
	}
	for i := range s.Load.Phases {
		if p := &s.Load.Phases[i]; p.Name == "" {
			p.Name = fmt.Sprintf("phase %d", i+1)
		}
	}
	return s, s.check()
}

// Scale multiplies the duration of the scenario.
func (s *Scenario) Scale(by float64) {
	scaled := func(d time.Duration) time.Duration { return time.Duration(by * float64(d)) }
	for i := range s.Load.Phases {
		s.Load.Phases[i].For = scaled(s.Load.Phases[i].For)
	}
	for i := range s.Changes {
		s.Changes[i].At = scaled(s.Changes[i].At)
	}
}

// without returns the scenario whose outcome is compared with that of s: without the lines of the configuration that
// contain CompareWithout.
func (s *Scenario) without() *Scenario {
	var config strings.Builder
	for line := range strings.Lines(s.Adbuffer.Config) {
		if !strings.Contains(line, s.Adbuffer.CompareWithout) {
			config.WriteString(line)
		}
	}
	other := *s
	other.Name = fmt.Sprintf("%s, without %q", s.Name, s.Adbuffer.CompareWithout)
	other.Adbuffer.Config, other.Adbuffer.CompareWithout, other.Expect.Shape = config.String(), "", nil
	return &other
}

// Plan returns the load of s as a plan without an address.
func (s *Scenario) Plan() load.Plan {
	l := s.Load
	p := load.Plan{Protocol: l.Protocol, Depth: l.Depth, Open: l.Mode == "open", Poisson: l.Arrivals == "poisson",
		Connections: l.Connections, Threads: l.Threads, Timeout: l.Timeout, Requests: l.Requests,
		Statuses: s.Expect.Status, Echo: s.Expect.Echo, Seed: l.Seed, Insecure: s.Target.Insecure, Templates: s.Requests}
	for _, phase := range l.Phases {
		out := load.Phase{Name: phase.Name, Duration: phase.For, BurstEvery: phase.Burst.Every,
			BurstSize: phase.Burst.Requests, Unrecorded: phase.Record != nil && !*phase.Record}
		if phase.Rate != nil {
			phase.From, phase.To = phase.Rate, phase.Rate
		}
		if phase.From != nil {
			out.From, out.To = float64(*phase.From), float64(*phase.To)
		}
		p.Phases = append(p.Phases, out)
	}
	return p
}
