package rig

import (
	"slices"
	"strings"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
)

// SSP is an SSP of a measurement: its part of adbuffer's configuration and its simulation.
type SSP struct {
	Name     string
	Protocol string   // protocol of adbuffer towards it; "" is auto
	Pool     string   // keys of pool in the flow style of YAML, without braces
	More     []string // more keys of the SSP, one in each line
	URLs     []string // its endpoints; if there is none, Start starts simulated SSPs
	CAFile   string
	Weights  []int // of its endpoints; if there is none, all are equal

	Speaks    sspsim.Protocol // protocol of the simulated SSP; "" is HTTP/1.1 in cleartext
	Behaviour sspsim.Behaviour
	Seed      uint64
	Spare     bool // the last of its URLs has priority 1
}

// IsSpare reports whether the endpoint of an index is the spare.
func (s *SSP) IsSpare(i int) bool { return s.Spare && i == len(s.URLs)-1 }

// Setup describes the SSPs of a measurement and the server in front of them.
type Setup struct {
	SSPs []*SSP
	// Program is a key of programs, "direct" for the first SSP, or "" for adbuffer.
	Program string
	Route   *Route // route of Program; Start starts it unless it runs
	Config  Config // configuration of adbuffer
	OneCore bool   // adbuffer may use one thread at a time
	// Anywhere lets the server run on cores other than Rig.ProxyCores.
	Anywhere bool
	URL      string // of a running server
	PID      int    // its process; 0 if unknown
}

// Stage is a setup with its running processes.
type Stage struct {
	*Rig
	Addr     string // host:port of the loaded server
	TLS      bool
	PID      int             // process of the loaded server; 0 if unknown
	Adbuffer *Adbuffer       // nil if the server is another program
	SSPs     []*SimulatedSSP // all simulated SSPs
	stops    []func()
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
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
	s.stops = nil
}

// Start starts the processes of a setup.
func (r *Rig) Start(t Setup) *Stage {
	s := &Stage{Rig: r}
	for _, ssp := range t.SSPs {
		s.startSSP(ssp, t.Anywhere)
	}
	switch {
	case t.Program == "direct":
		s.Addr, s.PID = s.SSPs[0].Addr, s.SSPs[0].PID
	case t.Program != "":
		s.startProgram(t)
	case t.URL != "":
		s.Addr, s.PID = HostOf(t.URL), t.PID
	default:
		s.startAdbuffer(t)
	}
	return s
}

// startSSP simulates an SSP, unless it has URLs.
func (s *Stage) startSSP(ssp *SSP, anywhere bool) {
	if len(ssp.URLs) > 0 {
		return
	}
	cores := s.LoadCores
	if anywhere {
		cores = ""
	}
	sim := s.Rig.startSSP(ssp.Name, cores, simulation{Protocol: ssp.Speaks, Behaviour: ssp.Behaviour, Seed: ssp.Seed})
	s.stops = append(s.stops, sim.Stop)
	s.SSPs = append(s.SSPs, sim)
	ssp.URLs, ssp.CAFile = []string{sim.URL}, sim.CAFile
}

func (s *Stage) startAdbuffer(t Setup) {
	c := t.Config
	c.SSPs = t.SSPs
	how := Command{Cores: s.ProxyCores}
	if t.Anywhere {
		how.Cores = ""
	}
	if t.OneCore {
		how.Env = []string{"GOMAXPROCS=1"}
	}
	s.Adbuffer = s.StartAdbuffer(s.Write("adbuffer-*.yaml", Must(c.YAML())(s.Rig)), how)
	s.stops = append(s.stops, s.Adbuffer.Stop)
	s.Addr, s.PID = s.Adbuffer.Addr, s.Adbuffer.PID
	s.TLS = c.Cert != nil
}

// startProgram starts the program of the setup, unless it runs already.
func (s *Stage) startProgram(t Setup) {
	route := t.Route
	if route.Process == nil {
		if len(t.SSPs) > 0 {
			route.CAFile = t.SSPs[0].CAFile
			route.Upstreams = []string{strings.TrimSuffix(t.SSPs[0].URLs[0], "/bid")}
		}
		s.StartProgram(t.Program, s.ProxyCores, "", route)
		s.stops = append(s.stops, route.Process.Stop)
	}
	s.Addr, s.PID = route.Addr, route.Process.PID
	s.TLS = route.TLS != nil
}

// counters holds the resource use of the server and the sums of the SSPs' counters.
type counters struct {
	usage load.Usage
	ssp   sspsim.Counters
}

func (s *Stage) counters() (b counters) {
	if s.PID != 0 {
		b.usage = Must(load.ReadTree(s.PID))(s.Rig)
	}
	for _, ssp := range s.SSPs {
		c := ssp.Counters()
		b.ssp.Connections += c.Connections
		b.ssp.Handshakes += c.Handshakes
		b.ssp.Responded += c.Responded
		b.ssp.OpenConnections += c.OpenConnections
	}
	return b
}
