package stage

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// SSP is an SSP of a trial: its part of adbuffer's configuration and its simulation.
type SSP struct {
	Name     string   `yaml:"name"`
	Protocol string   `yaml:"-"` // protocol of adbuffer towards it; "" is auto
	Pool     string   `yaml:"-"` // keys of pool in the flow style of YAML, without braces
	More     []string `yaml:"-"` // more keys of the SSP, one in each line
	URLs     []string `yaml:"-"` // its endpoints; if there is none, Start starts simulated SSPs
	CAFile   string   `yaml:"-"`

	Speaks    sspsim.Protocol  `yaml:"protocol"` // protocol of the simulated SSP; "" is HTTP/1.1 in cleartext
	Behaviour sspsim.Behaviour `yaml:"-"`
	Node      yaml.Node        `yaml:"behaviour"` // Behaviour in a scenario file
	Endpoints int              `yaml:"-"`         // 0 is 1
	Spare     bool             `yaml:"-"`         // the last endpoint has priority 1
	Seed      uint64           `yaml:"seed"`
	Cores     string           `yaml:"cores"` // "" is Env.LoadCores

	sims []*rig.SSP
}

// IsSpare reports whether the endpoint of an index is the spare.
func (s *SSP) IsSpare(i int) bool { return s.Spare && i == len(s.URLs)-1 }

// named returns the SSP with this name, or nil.
func named(ssps []*SSP, name string) *SSP {
	if i := slices.IndexFunc(ssps, func(s *SSP) bool { return s.Name == name }); i >= 0 {
		return ssps[i]
	}
	return nil
}

// Stage is a trial with its running processes.
type Stage struct {
	*Env
	Trial     *Trial
	Addr      string // host:port of the loaded server
	Host      string // value of the Host field
	Authority []byte // CA of the server's certificate in PEM
	TLS       bool
	PID       int           // process of the loaded server; 0 if unknown
	Adbuffer  *rig.Adbuffer // nil if the server is another program
	SSPs      []*rig.SSP    // all simulated SSPs
	stops     []func()
}

// Stop stops the processes that Start has started.
func (s *Stage) Stop() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
	s.stops = nil
}

// Start starts the processes of a trial. The error is rig.ErrMissing if a program is not installed.
func (e *Env) Start(ctx context.Context, t *Trial) (_ *Stage, err error) {
	s := &Stage{Env: e, Trial: t}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if t.Tool != "" {
		if _, err := rig.Find(t.Tool); err != nil {
			return nil, err
		}
	}
	for _, ssp := range t.SSPs {
		if err := s.startSSP(ssp); err != nil {
			return nil, err
		}
	}
	switch t.Server.Program {
	case "":
		if t.Server.URL != "" {
			s.PID = t.Server.PID
			return s, s.loadURL(t.Server.URL, t.Server.CAFile)
		}
		err = s.startAdbuffer(ctx)
	case "direct":
		ssp := t.SSPs[0]
		if t.Server.SSP != "" {
			ssp = named(t.SSPs, t.Server.SSP)
		}
		sim := ssp.sims[0]
		s.PID = sim.PID
		err = s.loadURL(sim.URL, sim.CAFile)
	default:
		err = s.startProgram(ctx)
	}
	return s, err
}

func (s *Stage) startSSP(ssp *SSP) error {
	if len(ssp.URLs) > 0 && len(ssp.sims) == 0 {
		return nil // another trial simulates it
	}
	ssp.URLs, ssp.sims = nil, nil
	cores := ssp.Cores
	if cores == "" && !s.Trial.Server.Anywhere {
		cores = s.LoadCores
	}
	for i := range max(1, ssp.Endpoints) {
		sim, err := s.Rig.StartSSP(rig.SSPOptions{Name: fmt.Sprintf("%s-%d", ssp.Name, i), Protocol: ssp.Speaks, Behaviour: ssp.Behaviour, Seed: ssp.Seed + uint64(i), Cores: cores})
		if err != nil {
			return err
		}
		s.stops = append(s.stops, sim.Stop)
		s.SSPs = append(s.SSPs, sim)
		ssp.sims, ssp.URLs, ssp.CAFile = append(ssp.sims, sim), append(ssp.URLs, sim.URL), sim.CAFile
	}
	return nil
}

// loadURL sets the server to load.
func (s *Stage) loadURL(text, caFile string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if caFile != "" {
		if s.Authority, err = os.ReadFile(caFile); err != nil {
			return err
		}
	}
	s.Addr, s.Host, s.TLS = u.Host, u.Host, u.Scheme == "https"
	if u.Port() == "" {
		s.Addr += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	return nil
}

func (s *Stage) startAdbuffer(ctx context.Context) error {
	server := s.Trial.Server
	c := server.Config
	c.SSPs = s.Trial.SSPs
	if c.TLS && c.Cert == nil {
		cert, err := s.Rig.Certificate("adbuffer", "127.0.0.1")
		if err != nil {
			return err
		}
		c.Cert = &cert
	}
	text, err := c.YAML()
	if err != nil {
		return err
	}
	cores := s.ProxyCores
	if server.Anywhere {
		cores = c.Cores
	}
	var env []string
	if server.OneCore {
		env = []string{"GOMAXPROCS=1"}
	}
	shared := server.Shared
	if shared == nil {
		shared = new(Shared)
	}
	if shared.process == nil {
		file, err := s.Rig.Write("adbuffer-*.yaml", text)
		if err != nil {
			return err
		}
		if shared.process, err = s.Rig.StartAdbuffer(ctx, s.Env.Adbuffer, file, cores, env...); err != nil {
			return err
		}
		if server.Shared == nil {
			s.stops = append(s.stops, shared.process.Stop)
		}
	}
	a := shared.process
	s.Adbuffer, s.Addr, s.Host, s.PID = a, a.Addr, a.Addr, a.PID
	if c.Cert != nil {
		s.TLS, s.Authority = true, c.Cert.Authority
	}
	return nil
}

// startProgram starts the program of the trial, unless it runs already.
func (s *Stage) startProgram(ctx context.Context) error {
	route := s.Trial.Server.Route
	if route.Process == nil {
		if len(s.Trial.SSPs) > 0 {
			ssp := s.Trial.SSPs[0]
			route.CAFile, route.Upstreams, route.Spare = ssp.CAFile, nil, ssp.Spare
			for _, u := range ssp.URLs {
				route.Upstreams = append(route.Upstreams, strings.TrimSuffix(u, "/bid"))
			}
		}
		if err := s.Rig.StartProgram(ctx, s.Trial.Server.Program, s.ProxyCores, "", route); err != nil {
			return err
		}
		s.stops = append(s.stops, func() { route.Process.Stop(); route.Process = nil })
	}
	s.Addr, s.Host, s.PID = route.Addr, route.Addr, route.Process.PID
	if route.TLS != nil {
		s.TLS, s.Authority = true, route.TLS.Authority
	}
	return nil
}

// books holds the resource use of the server and the sums of the SSPs' counters.
type books struct {
	usage load.Usage
	ssp   sspsim.Counters
}

func (s *Stage) books() (b books, err error) {
	if s.PID != 0 {
		if b.usage, err = load.ReadTree(s.PID); err != nil {
			return b, err
		}
	}
	for _, ssp := range s.SSPs {
		c, err := ssp.Counters()
		if err != nil {
			return b, err
		}
		b.ssp.Connections += c.Connections
		b.ssp.Handshakes += c.Handshakes
		b.ssp.Responded += c.Responded
		b.ssp.OpenConnections += c.OpenConnections
	}
	return b, nil
}

// noteVersion adds the version of a program, if it is one, to the report.
func noteVersion(r *results.Report, program string) {
	name := program
	if runtime := map[string]string{"reverseproxy": "go", "sketch": "go", "fastify": "node"}[program]; runtime != "" {
		name = runtime
	}
	if path, err := rig.Find(name); err == nil && r.Versions[program] == "" {
		r.Versions[program] = results.Version(name, path)
	}
}
