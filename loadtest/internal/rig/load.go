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
	load.Summary                // of the whole load without its warm-up
	Phases       []load.Summary // of each phase, also of the warm-up
	Connections  uint64         // connections that the client opened
	ClientCPU    float64        // seconds
	TimeWait     uint64         // sockets in TIME_WAIT at the end
	Doubts       []string       // reasons not to trust the figures

	Usage // of the loaded server; 0 if its process is unknown

	SSP     sspsim.Counters // what the SSPs counted during the load
	SSPOpen uint64          // open connections to SSPs at the end
}

// Usage is the resource use of the loaded server during the whole load, including the warm-up.
type Usage struct {
	CPU   float64 // seconds
	CPUus float64 // microseconds for each response
	RSS   int64   // at the end
}

// Phase returns the figures of the phase with this name, or zero figures.
func (f *Figures) Phase(name string) load.Summary { return named(f.Phases, name) }

// Class returns the figures of the requests of this class, or zero figures.
func (f *Figures) Class(name string) load.Summary { return named(f.Classes, name) }

func named(all []load.Summary, name string) load.Summary {
	if i := slices.IndexFunc(all, func(s load.Summary) bool { return s.Name == name }); i >= 0 {
		return all[i]
	}
	return load.Summary{}
}

// Load sends requests to the server of a stage, and returns the figures of the client.
type Load func(*Stage) (*Figures, error)

// Tolerate returns a load that fails only if the test is interrupted. After any other error it returns zero figures, and
// calls note with these figures and the error.
func (run Load) Tolerate(note func(*Figures, error)) Load {
	return func(s *Stage) (*Figures, error) {
		f, err := run(s)
		if err != nil && s.Ctx.Err() == nil {
			f = new(Figures)
			note(f, err)
			return f, nil
		}
		return f, err
	}
}

// Measure runs a load on the stage. It adds the resource use of the server and the counters of the SSPs to the figures.
func (s *Stage) Measure(run Load) *Figures {
	before := s.counters()
	f := Must(run(s))(s.Rig)
	s.Check(s.Ctx.Err()) // an interrupted test has no report
	after := s.counters()
	// The CPU of one request is an average over the responses of all phases. Tools report none.
	served := f.Answered
	if len(f.Phases) > 0 {
		served = 0
	}
	for _, p := range f.Phases {
		served += p.Answered
	}
	cpu := (after.usage.CPU - before.usage.CPU).Seconds()
	f.Usage = Usage{CPU: cpu, CPUus: cpu * 1e6 / float64(max(served, 1)), RSS: after.usage.RSS}
	f.SSP = sspsim.Counters{Connections: after.ssp.Connections - before.ssp.Connections,
		Handshakes: after.ssp.Handshakes - before.ssp.Handshakes, Responded: after.ssp.Responded - before.ssp.Responded}
	f.SSPOpen = uint64(after.ssp.OpenConnections)
	return f
}

// Once starts a setup, measures one load, and stops the setup.
func (r *Rig) Once(t Setup, run Load) *Figures {
	s := r.Start(t)
	defer s.Stop()
	return s.Measure(run)
}

// Beside measures a load while fn runs. After the load it cancels the context of fn and waits until fn returns.
func (s *Stage) Beside(run Load, fn func(context.Context)) *Figures {
	ctx, stop := context.WithCancel(s.Ctx)
	var beside sync.WaitGroup
	beside.Go(func() { fn(ctx) })
	defer beside.Wait()
	defer stop()
	return s.Measure(run)
}

// Generate returns a load by the generator of package load. If failures are expected, failed requests are no reason to
// doubt the figures.
func Generate(plan load.Plan, failuresExpected bool) Load {
	return repeat(plan, failuresExpected, 1, nil)
}

// GenerateRetried is Generate, repeated up to twice while there are doubts, because another process may disturb the
// generator. The figures and the doubts are those of the last attempt.
func GenerateRetried(plan load.Plan, failuresExpected bool) Load {
	return repeat(plan, failuresExpected, 3, nil)
}

// GenerateWatched is Generate that calls watch with the progress after each interval.
func GenerateWatched(plan load.Plan, failuresExpected bool, watch func(load.Progress)) Load {
	return repeat(plan, failuresExpected, 1, watch)
}

func repeat(plan load.Plan, failuresExpected bool, tries int, watch func(load.Progress)) Load {
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
			if !failuresExpected {
				doubts = r.Doubts
			}
			return &Figures{Summary: r.Whole, Phases: r.Phases, Connections: r.Connections,
				ClientCPU: r.Generator.CPUSeconds, Doubts: doubts}, nil
		}
	}
}

// Generate executes a plan against the server of the stage.
func (s *Stage) Generate(plan load.Plan, watch func(load.Progress)) (*load.Result, error) {
	plan.Addr = s.Addr
	return s.Rig.Generate(plan, watch)
}

// ClosedLoop returns a plan in which each of conns connections sends its next request after a response. The load ends
// after n requests (0: no limit) or after length, whichever comes first. If n is set, length 0 means five minutes.
func ClosedLoop(conns, n int, length time.Duration, templates ...load.Template) load.Plan {
	if n > 0 && length == 0 {
		length = 5 * time.Minute
	}
	return load.Plan{Protocol: load.KeepAlive, Connections: conns, Requests: n, Timeout: 30 * time.Second,
		Phases: []load.Phase{{Name: "load", Duration: length}}, Templates: templates}
}

// OpenLoop returns a plan that sends requests at a steady rate, whether or not responses have come.
func OpenLoop(conns int, rate float64, warm, length time.Duration, templates ...load.Template) load.Plan {
	phases := []load.Phase{{Name: "load", Duration: length, From: rate, To: rate}}
	if warm > 0 {
		phases = append([]load.Phase{{Name: "warm-up", Duration: warm, From: rate, To: rate, Unrecorded: true}},
			phases...)
	}
	return load.Plan{Protocol: load.KeepAlive, Open: true, Connections: conns, Timeout: 5 * time.Second, Phases: phases,
		Templates: templates}
}

// Get returns a template of a GET request for path.
func Get(path string) load.Template { return load.Template{Name: path, Method: "GET", Path: path} }

// Bid returns a template of OpenRTB bid requests to path.
func Bid(name, path string) load.Template {
	t := Presets()["rtb"]
	t.Name, t.Path = name, path+"?cb="+load.Number
	return t
}
