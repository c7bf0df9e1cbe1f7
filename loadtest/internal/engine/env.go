package engine

import (
	"os/exec"
	"runtime"
	"strings"
	"time"

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
	// apart, as of taskset; both are "" where there is one core only.
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
// Where it is, its version is noted.
func (e *Env) Has(r *results.Report, program string) bool {
	path, err := rig.Find(program)
	if err != nil {
		r.Missing = append(r.Missing, err.Error())
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
