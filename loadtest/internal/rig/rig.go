// Package rig starts adbuffer, simulated SSPs, load generators and other proxies, loads them, and measures
// what the load cost.
//
// Each of these programs has a process of its own. So they share neither a garbage collector nor a scheduler,
// and a test can assign a core to each program.
package rig

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"adbuffer/internal/test/testsupport"
	"adbuffer/loadtest/internal/results"
)

// Rig is a running load test, with its processes and its directory. The test ends at its first error, as with
// Fatal of testing.T: Check ends the calling goroutine, and cancels Ctx for all other goroutines. So does each
// method that returns no error. The methods are safe for concurrent use.
type Rig struct {
	Ctx      context.Context // of the test
	Rep      *results.Report // of the test
	Dir      string          // holds configurations, certificates and logs; Close removes it
	Adbuffer string          // path of the executable; Build sets it
	Scale    float64         // size of the test; 1 is the full size
	Say      func(format string, args ...any)
	// ProxyCores and LoadCores, in the syntax of taskset, separate the proxy under test from all other
	// processes. Both are "" if the machine has one core.
	ProxyCores, LoadCores string

	end   context.CancelCauseFunc
	doing atomic.Pointer[string] // the last text of Next

	mu       sync.Mutex // guards the fields below
	procs    []*Process // in order of start
	reserved []func()   // release the ports of FreeAddr
}

// New returns a Rig of scale 1. The caller closes it.
func New(say func(format string, args ...any)) (*Rig, error) {
	dir, err := os.MkdirTemp("", "adbuffer-loadtest-")
	if err != nil {
		return nil, err
	}
	return &Rig{Dir: dir, Scale: 1, Say: say}, nil
}

// Close ends all processes, the newest first, releases the ports and removes the directory.
func (r *Rig) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range slices.Backward(r.procs) {
		p.Stop()
	}
	for _, release := range r.reserved {
		release()
	}
	r.reserved = nil
	os.RemoveAll(r.Dir)
}

// Do runs a test until its end or its first error. The error of an interrupted test is that of ctx.
func (r *Rig) Do(ctx context.Context, test func()) error {
	r.Ctx, r.end = context.WithCancelCause(ctx)
	defer r.end(nil)
	r.doing.Store(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test()
	}()
	<-ended
	return context.Cause(r.Ctx)
}

// Check ends the test if err is not nil.
func (r *Rig) Check(err error) {
	if err == nil {
		return
	}
	if doing := r.doing.Load(); doing != nil {
		err = fmt.Errorf("%s: %w", *doing, err)
	}
	r.end(err)
	runtime.Goexit()
}

// Must returns v. It ends the test of r if err is not nil.
func Must[T any](v T, err error) func(r *Rig) T {
	return func(r *Rig) T {
		r.Check(err)
		return v
	}
}

// Next prints what the test does next. If the test then fails, its error begins with this text.
func (r *Rig) Next(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.doing.Store(&text)
	r.Say("%s", text)
}

// Separate gives the proxy under test a core of its own, and all other processes another core.
func (r *Rig) Separate() {
	if runtime.NumCPU() > 1 {
		r.ProxyCores, r.LoadCores = "0", "1"
	}
}

// Count scales a number of requests. The result is at least lowest.
func (r *Rig) Count(full, lowest int) int { return max(int(float64(full)*r.Scale), lowest) }

// Time scales a duration. The result is at least lowest.
func (r *Rig) Time(full, lowest time.Duration) time.Duration {
	return max(time.Duration(float64(full)*r.Scale), lowest)
}

// Report starts the report of the test.
func (r *Rig) Report(title, question string) {
	r.Rep = &results.Report{Title: title, Question: question, Started: time.Now(), Scale: r.Scale,
		Machine: results.ThisMachine(), Versions: map[string]string{}}
}

// runtimes names, for a program of this repository, the program whose version the report shows instead.
var runtimes = map[string]string{"reverseproxy": "go", "sketch": "go", "fastify": "node"}

// installed adds the version of a program to the report. The error is errMissing if the program is not installed.
// The program "" is adbuffer, and is ignored.
func (r *Rig) installed(program string) error {
	if program == "" {
		return nil
	}
	path, err := r.find(program)
	if err != nil {
		return err
	}
	name := program
	if runtimes[program] != "" {
		name = runtimes[program]
		path, err = find(name)
		if err != nil {
			return err
		}
	}
	if r.Rep.Versions[program] == "" {
		r.Rep.Versions[program] = results.Version(name, path)
	}
	return nil
}

// Needs ends the test if a program is not installed.
func (r *Rig) Needs(program string) { r.Check(r.installed(program)) }

// Has reports whether a program is installed, and notes a missing program in the report.
func (r *Rig) Has(program string) bool {
	err := r.installed(program)
	if errors.Is(err, errMissing) {
		r.Rep.Misses(err.Error())
		return false
	}
	r.Check(err)
	return true
}

// Write creates a file in the directory and returns its path. The last * in pattern is replaced by a random
// text.
func (r *Rig) Write(pattern, text string) string {
	file := Must(os.CreateTemp(r.Dir, pattern))(r)
	_, err := file.WriteString(text)
	r.Check(errors.Join(err, file.Close()))
	return file.Name()
}

// FreeAddr returns an unused address of 127.0.0.1 for programs that cannot choose a port. No other
// test gets the port before Close.
func (r *Rig) FreeAddr() string {
	addr, release, err := testsupport.ReserveAddr()
	r.Check(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved = append(r.reserved, release)
	return addr
}

// ModuleRoot returns the root folder of this module. The working directory must be inside it.
func (r *Rig) ModuleRoot() string {
	mod, err := exec.CommandContext(r.Ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		r.Check(fmt.Errorf("go env GOMOD: %w", err))
	}
	return filepath.Dir(strings.TrimSpace(string(mod)))
}

// Sleep waits for d or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Median returns the median of v, without changing v. The median of no values is NaN.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(v))
	return sorted[len(sorted)/2]
}
