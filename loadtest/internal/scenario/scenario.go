// Package scenario has the load test that sends the load of a file.
package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// Scenario is the content of a scenario file.
type Scenario struct {
	Name   string
	Target struct {
		URL string // of a running server, http://host:port; "" loads the scenario's adbuffer
		PID int    // its process, whose CPU and memory are measured; 0 is none
	}
	Adbuffer Adbuffer
	SSPs     []SSP `yaml:"ssps"`
	Load     Load
	Requests []Request
	Expect   struct {
		Status []int  // of successful responses; empty is 200 to 299
		Echo   bool   // require the request's number in X-Echo-Cb
		Shape  *Shape // what qps.shape must achieve at an SSP; nil checks nothing
	}
	Changes []Change
}

// Adbuffer describes the adbuffer in front of the SSPs.
type Adbuffer struct {
	// Config is adbuffer's configuration as a Go template. {{url "name"}} and {{ca "name"}} insert the
	// address and the CA file of an SSP. server.listen and admin.listen should have port 0.
	Config string
	// CompareWithout runs the scenario a second time, without the lines of Config that contain this text; "" does not.
	CompareWithout string `yaml:"compare_without"`
}

// SSP is a simulated SSP.
type SSP struct {
	Name      string
	Protocol  sspsim.Protocol
	Behaviour Behaviour
}

// Load describes how the generator sends requests.
type Load struct {
	Mode        string // open | closed
	Arrivals    string // constant | poisson; without effect in mode closed
	Connections int
	Phases      []Phase
}

// Phase is a part of the load with its own rate. In mode closed it has none.
type Phase struct {
	Name      string
	For       time.Duration
	PerSecond float64 `yaml:"per_second"`
	Record    *bool   // false: a warm-up
}

// Request is one kind of request: that of a preset, or a GET.
type Request struct {
	Name     string
	Preset   string
	Weight   float64 // in the random choice among the requests; 0 is 1
	Path     string  // "" is the path of the preset
	Segments []int   // as in load.Template
}

// Change changes the behaviour of an SSP during the load.
type Change struct {
	At        time.Duration
	SSP       string
	Behaviour Behaviour // only these keys change
}

// Behaviour is the behaviour of an SSP, or some of its keys.
type Behaviour struct {
	sspsim.Behaviour
	JSON []byte // the keys, in the syntax of the SSP's control endpoint; nil if the file has no behaviour here
}

// UnmarshalYAML parses a behaviour. Its keys are those of the control endpoint. The decoder adds the errors to its own.
func (b *Behaviour) UnmarshalYAML(n *yaml.Node) error {
	var v any
	if err := n.Decode(&v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err == nil {
		b.JSON, err = text, b.Behaviour.UnmarshalJSON(text)
	}
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: behaviour: %v", n.Line, err)}}
	}
	return nil
}

func readFile(name string) (*Scenario, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parse(data)
}

// parse parses a scenario. Its error is the first mistake in the syntax of YAML; or else all unknown keys and wrong types,
// with their lines; or else all violations of rules, with their paths.
func parse(data []byte) (*Scenario, error) {
	s := &Scenario{Name: "unnamed", Load: Load{Mode: "open", Arrivals: "constant", Connections: 64}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	if len(s.Requests) == 0 {
		s.Requests = []Request{{Preset: "ad"}}
	}
	for i := range s.Load.Phases {
		p := &s.Load.Phases[i]
		p.Name = cmp.Or(p.Name, fmt.Sprintf("phase %d", i+1))
	}
	return s, s.check()
}

// check returns all violations of rules.
func (s *Scenario) check() error {
	var errs []error
	faultIf := func(wrong bool, path, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
		}
	}
	for i := range s.SSPs {
		name, path := s.SSPs[i].Name, fmt.Sprintf("ssps[%d].name", i)
		faultIf(name == "", path, "is missing")
		faultIf(s.ssp(name) != &s.SSPs[i], path, "%q: another SSP has this name", name)
	}
	t := s.Target
	faultIf((t.URL == "") == (s.Adbuffer.Config == ""), "target", "exactly one of target.url (a running server) and adbuffer.config must be set")
	faultIf(t.URL != "" && !isServer(t.URL), "target.url", "%q: must be http://host:port; paths are those of requests", t.URL)
	faultIf(t.PID < 0 || t.PID != 0 && t.URL == "", "target.pid", "%d: must be a process ID, and needs target.url", t.PID)
	_, err := (rig.Config{}).Parse(s.Adbuffer.Config)
	faultIf(err != nil, "adbuffer.config", "%v", err)
	l, open := s.Load, s.Load.Mode == "open"
	faultIf(!open && l.Mode != "closed", "load.mode", "%q: must be open or closed", l.Mode)
	faultIf(l.Arrivals != "constant" && l.Arrivals != "poisson", "load.arrivals", "%q: must be constant or poisson", l.Arrivals)
	faultIf(l.Connections < 1 || l.Connections > 60000, "load.connections", "%d: must be 1 to 60000", l.Connections)
	recorded := func(p Phase) bool { return p.Record == nil || *p.Record }
	faultIf(!slices.ContainsFunc(l.Phases, recorded), "load.phases", "at least one must be recorded")
	for i, p := range l.Phases {
		path := fmt.Sprintf("load.phases[%d].", i)
		faultIf(p.For < time.Millisecond || p.For > 24*time.Hour, path+"for", "%v: must be 1ms to 24h", p.For)
		faultIf(open && !(p.PerSecond > 0 && p.PerSecond <= 10e6), path+"per_second", "%v: must be above 0, and at most 10 million", p.PerSecond)
		faultIf(!open && p.PerSecond != 0, path+"per_second", "a closed loop has no rate: it sends the next request when a response arrives")
	}
	for i, r := range s.Requests {
		path := fmt.Sprintf("requests[%d].", i)
		_, known := rig.Presets()[r.Preset]
		faultIf(!known && r.Preset != "", path+"preset", "%q: must be one of ad, rtb, vast", r.Preset)
		at := r.template().Path
		faultIf(!strings.HasPrefix(at, "/") || strings.ContainsAny(at, " \r\n\t#"), path+"path",
			"%q: must start with /, and must not contain spaces, line ends or #", at)
		faultIf(!(r.Weight >= 0 && r.Weight <= 1e6), path+"weight", "%v: must be 0 to 1000000", r.Weight)
		const maxSegments = 100_000 // bounds the encoded requests of a template
		total := 1
		for _, n := range r.Segments {
			if n < 1 || n > maxSegments/total {
				faultIf(true, path+"segments", "%v: must be at least 1 each, and %d combinations of values at most", r.Segments, maxSegments)
				break
			}
			total *= n
		}
	}
	for i, status := range s.Expect.Status {
		faultIf(status < 200 || status > 599, fmt.Sprintf("expect.status[%d]", i), "%d: must be 200 to 599", status)
	}
	if e := s.Expect.Shape; e != nil {
		faultIf(s.ssp(e.SSP) == nil || len(s.ssp(e.SSP).Behaviour.Response.FillBy) == 0, "expect.shape.ssp", "%q: must be an SSP with response.fill_by", e.SSP)
		faultIf(s.Adbuffer.Config == "" || slices.ContainsFunc(s.Requests, func(r Request) bool { return len(r.Segments) == 0 }),
			"expect.shape", "needs adbuffer.config, and segments of all requests")
	}
	for i, change := range s.Changes {
		path := fmt.Sprintf("changes[%d].", i)
		faultIf(s.ssp(change.SSP) == nil, path+"ssp", "%q: no SSP of this name", change.SSP)
		faultIf(change.At < 0, path+"at", "%v: must not be negative", change.At)
		faultIf(change.Behaviour.JSON == nil, path+"behaviour", "is missing")
	}
	return errors.Join(errs...)
}

// ssp returns the SSP with this name, or nil.
func (s *Scenario) ssp(name string) *SSP {
	if i := slices.IndexFunc(s.SSPs, func(ssp SSP) bool { return ssp.Name == name }); i >= 0 {
		return &s.SSPs[i]
	}
	return nil
}

// without returns the scenario whose figures are compared with those of s: without the lines of the configuration that
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

func (r Request) template() load.Template {
	t, known := rig.Presets()[r.Preset]
	if !known {
		t = rig.Get(r.Path)
	}
	t.Name, t.Path, t.Weight, t.Segments = cmp.Or(r.Name, t.Name), cmp.Or(r.Path, t.Path), r.Weight, r.Segments
	return t
}

// plan returns the load of s, whose duration is multiplied by scale.
func (s *Scenario) plan(scale float64) load.Plan {
	p := load.Plan{Protocol: load.KeepAlive, Open: s.Load.Mode == "open", Poisson: s.Load.Arrivals == "poisson",
		Connections: s.Load.Connections, Statuses: s.Expect.Status, Echo: s.Expect.Echo}
	for _, phase := range s.Load.Phases {
		p.Phases = append(p.Phases, load.Phase{Name: phase.Name, Duration: scaled(phase.For, scale), From: phase.PerSecond, To: phase.PerSecond,
			Unrecorded: phase.Record != nil && !*phase.Record})
	}
	for _, r := range s.Requests {
		p.Templates = append(p.Templates, r.template())
	}
	return p
}

func scaled(d time.Duration, scale float64) time.Duration { return time.Duration(scale * float64(d)) }
