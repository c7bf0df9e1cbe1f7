package stage

import (
	"os/exec"
	"runtime"
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
