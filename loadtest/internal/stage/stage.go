package stage

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// SSP is an SSP of a measurement: its part of adbuffer's configuration and its simulation.
type SSP struct {
	Name     string
	Protocol string   // protocol of adbuffer towards it; "" is auto
	Pool     string   // keys of pool in the flow style of YAML, without braces
	More     []string // more keys of the SSP, one in each line
	URLs     []string // its endpoints; if there is none, Start starts simulated SSPs
	CAFile   string

	Speaks    sspsim.Protocol // protocol of the simulated SSP; "" is HTTP/1.1 in cleartext
	Behaviour sspsim.Behaviour
	Endpoints int  // 0 is 1
	Spare     bool // the last endpoint has priority 1
	Seed      uint64
	Cores     string // "" is Env.LoadCores
}

// IsSpare reports whether the endpoint of an index is the spare.
func (s *SSP) IsSpare(i int) bool { return s.Spare && i == len(s.URLs)-1 }

// Setup describes the SSPs of a measurement and the server in front of them.
type Setup struct {
	SSPs []*SSP
	// Program is a program of package rig, "direct" for the first SSP, or "" for adbuffer.
	Program string
	Route   *rig.Route // route of Program; Start starts it unless it runs
	Config  Config     // configuration of adbuffer
	OneCore bool       // adbuffer may use one thread at a time
	// Anywhere lets the server run on cores other than Env.ProxyCores.
	Anywhere bool
	// URL is a running server. CAFile and PID, which may be empty, belong to it.
	URL, CAFile string
	PID         int
}

// Stage is a setup with its running processes.
type Stage struct {
	*Env
	Addr      string // host:port of the loaded server
	Authority []byte // CA of the server's certificate in PEM
	TLS       bool
	PID       int           // process of the loaded server; 0 if unknown
	Adbuffer  *rig.Adbuffer // nil if the server is another program
	SSPs      []*rig.SSP    // all simulated SSPs
	stops     []func()
}

// URL returns the scheme, host and port of the loaded server.
func (s *Stage) URL() string {
	if s.TLS {
		return "https://" + s.Addr
	}
	return "http://" + s.Addr
}

// Stop stops the processes that Start has started.
func (s *Stage) Stop() {
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
	s.stops = nil
}

// Start starts the processes of a setup. The error is rig.ErrMissing if a program is not installed.
func (e *Env) Start(ctx context.Context, t Setup) (_ *Stage, err error) {
	s := &Stage{Env: e}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	for _, ssp := range t.SSPs {
		if err := s.startSSP(ssp, t.Anywhere); err != nil {
			return nil, err
		}
	}
	switch t.Program {
	case "":
		if t.URL != "" {
			s.PID = t.PID
			return s, s.loadURL(t.URL, t.CAFile)
		}
		err = s.startAdbuffer(ctx, t)
	case "direct":
		sim := s.SSPs[0]
		s.PID = sim.PID
		err = s.loadURL(sim.URL, sim.CAFile)
	default:
		err = s.startProgram(ctx, t)
	}
	return s, err
}

// startSSP simulates an SSP, unless it has URLs.
func (s *Stage) startSSP(ssp *SSP, anywhere bool) error {
	if len(ssp.URLs) > 0 {
		return nil
	}
	cores := ssp.Cores
	if cores == "" && !anywhere {
		cores = s.LoadCores
	}
	for i := range max(1, ssp.Endpoints) {
		sim, err := s.Rig.StartSSP(rig.SSPOptions{Name: fmt.Sprintf("%s-%d", ssp.Name, i), Protocol: ssp.Speaks,
			Behaviour: ssp.Behaviour, Seed: ssp.Seed + uint64(i), Cores: cores})
		if err != nil {
			return err
		}
		s.stops = append(s.stops, sim.Stop)
		s.SSPs = append(s.SSPs, sim)
		ssp.URLs, ssp.CAFile = append(ssp.URLs, sim.URL), sim.CAFile
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
		s.Authority, err = os.ReadFile(caFile)
		if err != nil {
			return err
		}
	}
	s.Addr, s.TLS = u.Host, u.Scheme == "https"
	if u.Port() == "" {
		s.Addr += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	return nil
}

func (s *Stage) startAdbuffer(ctx context.Context, t Setup) error {
	c := t.Config
	c.SSPs = t.SSPs
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
	if t.Anywhere {
		cores = c.Cores
	}
	var env []string
	if t.OneCore {
		env = []string{"GOMAXPROCS=1"}
	}
	file, err := s.Rig.Write("adbuffer-*.yaml", text)
	if err != nil {
		return err
	}
	a, err := s.Rig.StartAdbuffer(ctx, s.Env.Adbuffer, file, cores, env...)
	if err != nil {
		return err
	}
	s.stops = append(s.stops, a.Stop)
	s.Adbuffer, s.Addr, s.PID = a, a.Addr, a.PID
	if c.Cert != nil {
		s.TLS, s.Authority = true, c.Cert.Authority
	}
	return nil
}

// startProgram starts the program of the setup, unless it runs already.
func (s *Stage) startProgram(ctx context.Context, t Setup) error {
	route := t.Route
	if route.Process == nil {
		if len(t.SSPs) > 0 {
			ssp := t.SSPs[0]
			route.CAFile, route.Spare = ssp.CAFile, ssp.Spare
			for _, u := range ssp.URLs {
				route.Upstreams = append(route.Upstreams, strings.TrimSuffix(u, "/bid"))
			}
		}
		if err := s.Rig.StartProgram(ctx, t.Program, s.ProxyCores, "", route); err != nil {
			return err
		}
		s.stops = append(s.stops, route.Process.Stop)
	}
	s.Addr, s.PID = route.Addr, route.Process.PID
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
		b.usage, err = load.ReadTree(s.PID)
		if err != nil {
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
