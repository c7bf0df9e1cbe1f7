package rig

import (
	"context"
	"slices"
	"sync"
	"time"

	"adbuffer/internal/test/sspsim"
	"adbuffer/loadtest/internal/load"
)

// Figures are the measurements of one load.
type Figures struct {
	load.Summary                // of the load without its warm-up
	Phases       []load.Summary // with the warm-up
	Connections  uint64         // that the client opened
	ClientCPU    float64        // seconds
	TimeWait     uint64         // sockets in TIME_WAIT at the end
	Doubts       []string       // reasons for not trusting the figures

	Usage // of the loaded server; 0 if its process is unknown

	SSP     sspsim.Counters // what the SSPs counted during the load
	SSPOpen uint64          // open connections to SSPs at the end
}

// Usage is the resource use of the loaded server, with the warm-up.
type Usage struct {
	PID     int     `json:"pid"`
	CPU     float64 `json:"cpu_seconds"`
	CPUus   float64 `json:"cpu_us_per_request"` // microseconds for each response
	RSS     int64   `json:"rss_bytes"`
	PeakRSS int64   `json:"peak_rss_bytes"`
	Files   int     `json:"open_files"`
}

// Used returns what the server used between before and after, under a load. Load tools report no phases: then whole
// has the number of responses.
func (s *Stage) Used(before, after load.Usage, whole load.Summary, phases []load.Summary) Usage {
	served := whole.Answered
	if len(phases) > 0 {
		served = 0
		for _, p := range phases {
			served += p.Answered
		}
	}
	cpu := (after.CPU - before.CPU).Seconds()
	return Usage{PID: s.PID, CPU: cpu, CPUus: cpu * 1e6 / float64(max(served, 1)), RSS: after.RSS, PeakRSS: after.PeakRSS, Files: after.Files}
}

// Phase returns the figures of a phase.
func (f *Figures) Phase(name string) load.Summary { return named(f.Phases, name) }

// Class returns the figures of a class of requests.
func (f *Figures) Class(name string) load.Summary { return named(f.Classes, name) }

func named(all []load.Summary, name string) load.Summary {
	if i := slices.IndexFunc(all, func(s load.Summary) bool { return s.Name == name }); i >= 0 {
		return all[i]
	}
	return load.Summary{}
}

// Load loads a stage.
type Load func(*Stage) (*Figures, error)

// Tolerate returns a load that does not fail, except by an interruption. Instead it gives the error to noted, with
// figures of 0.
func (loaded Load) Tolerate(noted func(*Figures, error)) Load {
	return func(s *Stage) (*Figures, error) {
		f, err := loaded(s)
		if err != nil && s.Ctx.Err() == nil {
			f = new(Figures)
			noted(f, err)
			return f, nil
		}
		return f, err
	}
}

// Measure loads the stage. It adds the resource use of the server and the counters of the SSPs.
func (s *Stage) Measure(loaded Load) *Figures {
	before := s.books()
	f := Must(loaded(s))(s.Rig)
	s.Check(s.Ctx.Err()) // an interrupted test has no report
	after := s.books()
	if s.PID != 0 {
		f.Usage = s.Used(before.usage, after.usage, f.Summary, f.Phases)
	}
	f.SSP = sspsim.Counters{Connections: after.ssp.Connections - before.ssp.Connections,
		Handshakes: after.ssp.Handshakes - before.ssp.Handshakes, Responded: after.ssp.Responded - before.ssp.Responded}
	f.SSPOpen = uint64(after.ssp.OpenConnections)
	return f
}

// Once starts a setup, measures one load, and stops the setup.
func (r *Rig) Once(t Setup, loaded Load) *Figures {
	s := r.Start(t)
	defer s.Stop()
	return s.Measure(loaded)
}

// Beside measures a load while fn runs. After the load it cancels the context of fn and waits until fn returns.
func (s *Stage) Beside(loaded Load, fn func(context.Context)) *Figures {
	ctx, stop := context.WithCancel(s.Ctx)
	var beside sync.WaitGroup
	beside.Go(func() { fn(ctx) })
	defer beside.Wait()
	defer stop()
	return s.Measure(loaded)
}

// Generate loads with the generator of package load. If failures are expected, failed requests cause
// no doubt.
func Generate(plan load.Plan, expected bool) Load { return repeat(plan, expected, 1, nil) }

// Calmly is Generate with up to three attempts, because another process may disturb the generator.
// The result of the last attempt counts, with its doubts.
func Calmly(plan load.Plan, expected bool) Load { return repeat(plan, expected, 3, nil) }

// Watched is Generate, which calls watch after each interval.
func Watched(plan load.Plan, expected bool, watch func(load.Progress)) Load {
	return repeat(plan, expected, 1, watch)
}

func repeat(plan load.Plan, expected bool, tries int, watch func(load.Progress)) Load {
	return func(s *Stage) (*Figures, error) {
		for attempt := 1; ; attempt++ {
			r, err := s.Generate(plan, watch)
			if err != nil {
				return nil, err
			}
			doubts := slices.DeleteFunc(slices.Clone(r.Doubts), load.AboutFailures)
			if attempt < tries && len(doubts) > 0 {
				s.Say("again, since %s", doubts[0])
				continue
			}
			if !expected {
				doubts = r.Doubts
			}
			return &Figures{Summary: r.Whole, Phases: r.Phases, Connections: r.Connections.TCP,
				ClientCPU: r.Generator.CPUSeconds, Doubts: doubts}, nil
		}
	}
}

// Generate executes a plan against the server of the stage.
func (s *Stage) Generate(plan load.Plan, watch func(load.Progress)) (*load.Result, error) {
	plan.Addr = s.Addr
	if s.TLS {
		plan.Encrypted, plan.Authority = true, append(plan.Authority, s.Authority...)
	}
	return s.Rig.Generate(plan, watch)
}

// ClosedLoop returns a plan in which each of conns connections sends its next request after a
// response. The run ends after n requests, or after length if n is 0.
func ClosedLoop(conns, n int, length time.Duration, templates ...load.Template) load.Plan {
	if n > 0 && length == 0 {
		length = 5 * time.Minute
	}
	return load.Plan{Protocol: load.KeepAlive, Connections: conns, Requests: n, Timeout: 30 * time.Second,
		Phases: []load.Phase{{Name: "load", Duration: length}}, Templates: templates}
}

// OpenLoop returns a plan with a steady rate.
func OpenLoop(conns int, rate float64, warm, length time.Duration, templates ...load.Template) load.Plan {
	phases := []load.Phase{{Name: "load", Duration: length, From: rate, To: rate}}
	if warm > 0 {
		phases = append([]load.Phase{{Name: "warm-up", Duration: warm, From: rate, To: rate, Unrecorded: true}},
			phases...)
	}
	return load.Plan{Protocol: load.KeepAlive, Open: true, Connections: conns, Timeout: 5 * time.Second, Phases: phases,
		Templates: templates}
}

// Get returns a small GET of path.
func Get(path string) load.Template { return load.Template{Name: path, Method: "GET", Path: path} }

// Bid returns OpenRTB bid requests to path.
func Bid(name, path string) load.Template {
	t := Presets()["rtb"]
	t.Name, t.Path = name, path+"?cb="+load.Number
	return t
}
