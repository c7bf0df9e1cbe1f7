package stage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// Generate loads with the generator of package load. If failures are expected, failed requests cause
// no doubt.
func Generate(plan load.Plan, expected bool) Driver { return generate(plan, expected, 1, nil) }

// Calmly is Generate with up to three attempts, because another process may disturb the generator.
// The result of the last attempt counts, with its doubts.
func Calmly(plan load.Plan, expected bool) Driver { return generate(plan, expected, 3, nil) }

// Watched is Generate, which calls watch after each interval.
func Watched(plan load.Plan, watch func(load.Progress)) Driver {
	return generate(plan, false, 1, watch)
}

func generate(plan load.Plan, expected bool, tries int, watch func(load.Progress)) Driver {
	return func(ctx context.Context, s *Stage) (*Sample, error) {
		for {
			r, err := s.Generate(ctx, plan, watch)
			if err != nil {
				return nil, err
			}
			others := slices.DeleteFunc(slices.Clone(r.Doubts), load.AboutFailures)
			if tries--; tries > 0 && len(others) > 0 {
				s.Say("again, since %s", others[0])
				continue
			}
			if !expected {
				others = r.Doubts
			}
			return sampleOf(r, others), nil
		}
	}
}

// Generate executes a plan against the server of the stage.
func (s *Stage) Generate(ctx context.Context, plan load.Plan, watch func(load.Progress)) (*load.Result, error) {
	plan.Addr, plan.Host = s.Addr, s.Host
	if s.TLS {
		plan.Encrypted, plan.Authority = true, append(plan.Authority, s.Authority...)
	}
	return s.Rig.Generate(ctx, plan, s.LoadCores, watch)
}

func sampleOf(r *load.Result, doubts []string) *Sample {
	s := &Sample{Values: Values{"client.connections": float64(r.Connections.TCP), "client.cpu": r.Generator.CPUSeconds}, Texts: map[string]string{}, Doubts: doubts, Ticks: r.Timeline}
	s.add("", r.Whole)
	served := 0.0
	for _, p := range r.Phases {
		s.add(p.Name+".", p)
		served += float64(p.Answered)
	}
	for _, c := range r.Whole.Classes {
		s.add(c.Name+".", c)
	}
	s.Values["served"] = served
	return s
}

// add adds the figures of a summary. Their names begin with prefix.
func (s *Sample) add(prefix string, of load.Summary) {
	for name, v := range map[string]float64{"offered": float64(of.Offered), "answered": float64(of.Answered), "failed": float64(of.Failed), "seconds": of.Seconds,
		"rate": of.Rate, "p50": of.Latency.P50, "p95": of.Latency.P95, "p99": of.Latency.P99, "p999": of.Latency.P999, "max": of.Latency.Max} {
		s.Values[prefix+name] = v
	}
	var errors []string
	for kind, n := range of.Errors {
		kind = strings.TrimPrefix(strings.Replace(kind, "proxy/", "", 1), "status ")
		errors = append(errors, fmt.Sprintf("%s: %d", kind, n))
		s.Values[prefix+"errors."+kind] = float64(n)
	}
	slices.Sort(errors)
	kinds, failures := "none", "none failed"
	if of.Failed > 0 {
		kinds = cmp.Or(strings.Join(errors, ", "), "of unknown kind") // load tools name no kinds
		failures = fmt.Sprintf("%d of %d failed (%s)", of.Failed, of.Answered+of.Failed, kinds)
	}
	s.Texts[prefix+"errors"], s.Texts[prefix+"failures"] = kinds, failures
}

// AB loads path with ApacheBench.
func AB(path string, n, conns int, flags ...string) Driver {
	return tool(func(ctx context.Context, s *Stage) (rig.Load, error) {
		return rig.AB(ctx, s.URL()+path, n, conns, s.LoadCores, flags...)
	})
}

// WRK loads with wrk.
func WRK(t load.Template, conns int, length time.Duration) Driver {
	return tool(func(ctx context.Context, s *Stage) (rig.Load, error) {
		return rig.WRK(ctx, s.Rig.Dir, s.URL(), t, conns, length, s.LoadCores)
	})
}

// H2Load loads over HTTP/2 with h2load.
func H2Load(t load.Template, conns, streams int, length time.Duration) Driver {
	return tool(func(ctx context.Context, s *Stage) (rig.Load, error) {
		return rig.H2Load(ctx, s.Rig.Dir, s.URL(), t, conns, streams, length, s.LoadCores)
	})
}

// Sequence sends n GETs of path one after the other from one curl or Node process. close opens a
// connection for each request.
func Sequence(program, path string, n int, close bool) Driver {
	return tool(func(ctx context.Context, s *Stage) (rig.Load, error) {
		if program == "curl" {
			return rig.Curl(ctx, s.URL()+path, n, close)
		}
		return rig.Node(ctx, s.URL()+path, n, close)
	})
}

// URL returns the scheme, host and port of the loaded server.
func (s *Stage) URL() string {
	if s.TLS {
		return "https://" + s.Addr
	}
	return "http://" + s.Addr
}

// tool returns a driver that runs a load tool.
func tool(run func(context.Context, *Stage) (rig.Load, error)) Driver {
	return func(ctx context.Context, s *Stage) (*Sample, error) {
		l, err := run(ctx, s)
		if err != nil {
			return nil, err
		}
		sample := &Sample{Values: Values{"client.connections": float64(l.Handshakes), "timewait": float64(load.TimeWait())}, Texts: map[string]string{}, Doubts: l.Doubts()}
		sample.add("", l.Summary)
		return sample, nil
	}
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
		phases = append([]load.Phase{{Name: "warm-up", Duration: warm, From: rate, To: rate, Unrecorded: true}}, phases...)
	}
	return load.Plan{Protocol: load.KeepAlive, Open: true, Connections: conns, Timeout: 5 * time.Second, Phases: phases, Templates: templates}
}

// Get returns a small GET of path.
func Get(path string) load.Template { return load.Template{Name: path, Method: "GET", Path: path} }

// preset returns a preset with another name and path.
func preset(preset, name, path string) load.Template {
	t := Presets()[preset]
	t.Name, t.Path = name, path
	return t
}

// Bid returns OpenRTB bid requests to path.
func Bid(name, path string) load.Template { return preset("rtb", name, path+"?cb="+load.Number) }

// Page returns GETs to path such as those of a web page.
func Page(name, path string) load.Template {
	return preset("ad", name, path+"?cb="+load.Number+"&pub=123456&site=publisher.example&slot=top-banner&w=300&h=250")
}
