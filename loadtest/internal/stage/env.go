// Package stage starts the processes of a measurement, loads them, and measures what the load cost.
package stage

import (
	"context"
	"errors"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Env is the environment of a load test.
type Env struct {
	Rig      *rig.Rig
	Adbuffer string  // path of the executable
	Scale    float64 // size of the test; 1 is the full size
	Say      func(format string, args ...any)
	// ProxyCores and LoadCores, in the syntax of taskset, separate the proxy under test from all other
	// processes. Both are "" if the machine has one core.
	ProxyCores, LoadCores string
}

// Cores returns the core of the proxy under test and the core of all other processes.
func Cores() (proxy, load string) {
	if runtime.NumCPU() < 2 {
		return "", ""
	}
	return "0", "1"
}

// Build builds adbuffer, unless the user named an executable.
func (e *Env) Build(ctx context.Context) (err error) {
	if e.Adbuffer == "" {
		e.Say("building adbuffer")
		e.Adbuffer, err = e.Rig.Build(ctx)
	}
	return err
}

// Count scales a number of requests. The result is at least least.
func (e *Env) Count(full, least int) int { return max(int(float64(full)*e.Scale), least) }

// Time scales a duration. The result is at least least.
func (e *Env) Time(full, least time.Duration) time.Duration {
	return max(time.Duration(float64(full)*e.Scale), least)
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

// runtimes are the programs whose versions stand for those of programs of this repository.
var runtimes = map[string]string{"reverseproxy": "go", "sketch": "go", "fastify": "node"}

// Needs adds the versions of programs to the report. The error is rig.ErrMissing if one is not installed.
// It ignores "", which is adbuffer, and "direct".
func Needs(r *results.Report, programs ...string) error {
	for _, program := range programs {
		if program == "" || program == "direct" {
			continue
		}
		name := program
		if runtimes[program] != "" {
			name = runtimes[program]
		}
		path, err := rig.Find(name)
		if err != nil {
			return err
		}
		if r.Versions[program] == "" {
			r.Versions[program] = results.Version(name, path)
		}
	}
	return nil
}

// Skips reports whether err says that a program is not installed, and notes that in the report.
func Skips(r *results.Report, err error) bool {
	if !errors.Is(err, rig.ErrMissing) {
		return false
	}
	r.Misses(err.Error())
	return true
}

// Sleep waits for d or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Median returns the median of v, without changing v. Of no values it is NaN.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}
