package engine

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Env is what a load test works with.
type Env struct {
	Rig      *rig.Rig
	Adbuffer string  // its executable
	Scale    float64 // of the full size, above 0
	Say      func(format string, args ...any)
	// ProxyCores and LoadCores keep the proxy under test and everything else
	// apart, as of taskset; both are "" if there is one core only.
	ProxyCores, LoadCores string
}

// Cores returns the cores of the proxy under test and those of the rest: a core
// each on small machines.
func Cores() (proxy, load string) {
	if runtime.NumCPU() < 2 {
		return "", ""
	}
	return "0", "1"
}

// Count scales a number of requests, to at least least.
func (e *Env) Count(full, least int) int { return max(int(float64(full)*e.Scale), least) }

// Time scales a time, to at least least.
func (e *Env) Time(full, least time.Duration) time.Duration {
	return max(time.Duration(float64(full)*e.Scale), least)
}

// Has says whether a program is installed, and notes in the report if it is not.
// If it is, its version is noted.
func (e *Env) Has(r *results.Report, program string) bool {
	path, err := exec.LookPath(program)
	if err != nil {
		r.Missing = append(r.Missing, program)
		return false
	}
	r.Versions[program] = results.Version(program, path)
	return true
}

// Report starts a report.
func (e *Env) Report(kind, title, question string) *results.Report {
	e.Say("%s: %s", kind, title)
	r := &results.Report{Kind: kind, Title: title, Question: question, Started: time.Now(), Scale: e.Scale,
		Machine: results.ThisMachine(), Versions: map[string]string{}}
	out, err := exec.Command(e.Adbuffer, "version").Output()
	if err != nil {
		out = []byte("of unknown version")
	}
	r.Versions["adbuffer"] = strings.Join(strings.Fields(string(out)), " ")
	return r
}

// Done ends a report.
func (e *Env) Done(r *results.Report) *results.Report {
	r.Seconds = time.Since(r.Started).Seconds()
	return r
}

// Measured is a run of the generator beside what a process used meanwhile.
type Measured struct {
	*load.Result
	CPU   time.Duration // of the process under test
	After load.Usage
}

// PerRequest returns CPU microseconds a response.
func (m Measured) PerRequest() float64 {
	var n uint64
	for _, p := range m.Phases {
		n += p.Answered
	}
	if n == 0 {
		return 0
	}
	return m.CPU.Seconds() * 1e6 / float64(n)
}

// Generate loads addr from a process of its own, and measures pid, unless it is
// 0, and its children.
func (e *Env) Generate(ctx context.Context, plan load.Plan, pid int) (Measured, error) {
	return e.GenerateWatched(ctx, plan, pid, nil)
}

// GenerateWatched is Generate that tells watch once an interval how it goes on.
func (e *Env) GenerateWatched(ctx context.Context, plan load.Plan, pid int, watch func(load.Progress)) (Measured, error) {
	var before load.Usage
	var err error
	if pid != 0 {
		if before, err = load.ReadTree(pid); err != nil {
			return Measured{}, err
		}
	}
	result, err := e.Rig.Generate(ctx, plan, e.LoadCores, watch)
	if ctx.Err() != nil {
		err = ctx.Err() // a part of a table says nothing
	}
	if err != nil {
		return Measured{Result: result}, err
	}
	m := Measured{Result: result}
	if pid != 0 {
		if m.After, err = load.ReadTree(pid); err != nil {
			return m, err
		}
		m.CPU = m.After.CPU() - before.CPU()
	}
	return m, nil
}

// tries is how often a disturbed measurement is made again.
const tries = 3

// GenerateCalmly is Generate, made again where another process got
// in the generator's way. The last result stands, with its doubts.
func (e *Env) GenerateCalmly(ctx context.Context, plan load.Plan, pid int) (m Measured, err error) {
	for range tries {
		if m, err = e.Generate(ctx, plan, pid); err != nil || len(GeneratorDoubts(m.Result)) == 0 {
			return m, err
		}
		e.Say("again, since %s", GeneratorDoubts(m.Result)[0])
	}
	return m, nil
}

// GeneratorDoubts are the doubts about the generator alone, where a test makes
// requests fail on purpose.
func GeneratorDoubts(r *load.Result) []string {
	var out []string
	for _, d := range r.Doubts {
		if !load.AboutFailures(d) {
			out = append(out, d)
		}
	}
	return out
}

// ClosedLoop returns a plan of conns connections that send as fast as responses
// come: n requests, or for a time if n is 0.
func ClosedLoop(addr string, conns, n int, length time.Duration, templates ...load.Template) load.Plan {
	if n > 0 && length == 0 {
		length = 5 * time.Minute
	}
	return load.Plan{Addr: addr, Host: addr, Protocol: load.KeepAlive, Connections: conns, Requests: n, Timeout: 30 * time.Second,
		Phases: []load.Phase{{Name: "load", Duration: length}}, Templates: templates}
}

// OpenLoop returns a plan of a steady rate.
func OpenLoop(addr string, conns int, rate float64, warm, length time.Duration, templates ...load.Template) load.Plan {
	phases := []load.Phase{{Name: "load", Duration: length, From: rate, To: rate}}
	if warm > 0 {
		phases = append([]load.Phase{{Name: "warm-up", Duration: warm, From: rate, To: rate, Unrecorded: true}}, phases...)
	}
	return load.Plan{Addr: addr, Host: addr, Protocol: load.KeepAlive, Open: true, Connections: conns, Timeout: 5 * time.Second, Phases: phases, Templates: templates}
}

// Get returns a small GET of path.
func Get(path string) load.Template {
	return load.Template{Name: path, Method: "GET", Path: path}
}

// HostOf returns host:port of a URL that this package's callers made.
func HostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	return u.Host
}
