package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Test is a load test as data: what it measures, how that is shown, and what must hold.
type Test struct {
	Kind, Title, Question string
	Needs                 []string // programs without which there is no test
	Notes                 []string
	Missing               []string // programs that are not measured, and why

	Trials []Trial
	Rounds int // of each trial; 0 is 1
	// Interleave starts all trials first, and measures them in turn, round by round. So each
	// meets the same moods of the machine. Otherwise one trial ends before the next starts.
	Interleave bool

	Tables   []Table
	Charts   []Chart
	Promises []Promise
}

// Trial is one thing measured: a row of a table.
type Trial struct {
	Name          string
	Group         string // of the tables and charts that show it
	Cells         []any  // the row's first; none is Name
	Label, Series string // in bar charts; "" is Name, and the chart's own
	Line          string // the series in line charts, where its point is at X
	X             float64
	Tags          []string // that charts choose by
	Base          string   // the trial that it is compared with
	Const         Values   // beside what is measured

	SSPs    []*SSP
	Server  Server
	Tool    string              // the program that loads it, without which it is left out
	Metrics map[string][]string // of adbuffer, read at the end of a round: name and labels
	Steps   []Step
	Derive  func(*Sample) // from what a round came to; may be nil
	// Last trials are measured once, after all rounds of an interleaved test.
	Last bool
}

// Server gets the load of a trial.
type Server struct {
	// Program is a program of package rig, "direct" for the first SSP itself, or "" for
	// adbuffer.
	Program string
	Route   *rig.Route // of Program; started where it does not run yet
	Config  Config     // of adbuffer
	OneCore bool       // adbuffer may use one thread at a time
	// Shared is the process of trials with the same configuration: the first to start makes it,
	// and it runs to the end of the test. Nil is a process of the trial's own.
	Shared *Shared
	// Anywhere does not keep the server on the proxies' cores.
	Anywhere bool
	// URL is a server that runs already. CAFile and PID, which may be empty, are its own.
	URL, CAFile string
	PID         int
	SSP         string // the name of a direct one; "" is the first
}

// Shared is an adbuffer that several trials load.
type Shared struct{ process *rig.Adbuffer }

// Step is one measurement of a round. Its values are named NAME.p99, and p99 where it has
// no name.
type Step struct {
	Name string
	// Before prepares the stage; what it returns, which may be nil, is called after the load.
	Before func(context.Context, *Stage) (after func() error, err error)
	Load   Driver
}

// Driver loads a stage and tells what it measured.
type Driver func(context.Context, *Stage) (*Sample, error)

// Values are measurements by name.
type Values map[string]float64

// Sample is what a step, or a round, came to.
type Sample struct {
	Values Values
	Texts  map[string]string
	Doubts []string // reasons not to trust the values; for a row, each names its step
	Void   string   // why there are no values
	Ticks  []load.Tick
}

// Row is a trial and what its rounds came to.
type Row struct {
	*Trial
	Rounds []*Sample
	Doubts map[string][]string // by step
	Void   string
}

// AllDoubts are those of all steps.
func (r *Row) AllDoubts() []string {
	var out []string
	for _, step := range slices.Sorted(maps.Keys(r.Doubts)) {
		for _, d := range r.Doubts[step] {
			if step != "" {
				d = step + ": " + d
			}
			out = append(out, d)
		}
	}
	return out
}

// Run carries a test out.
func Run(ctx context.Context, e *Env, t *Test) (*results.Report, error) {
	r := e.Report(t.Kind, t.Title, t.Question)
	r.Missing = t.Missing
	for _, program := range t.Needs {
		if !e.Has(r, program) {
			_, err := rig.Find(program)
			return nil, err
		}
	}
	var rows Rows
	for i := range t.Trials {
		rows = append(rows, &Row{Trial: &t.Trials[i], Doubts: map[string][]string{}})
	}
	if err := e.measureAll(ctx, t, rows, r); err != nil {
		return nil, err
	}
	r.Notes = t.Notes // trials may have added some
	rows = slices.DeleteFunc(rows, func(row *Row) bool { return len(row.Rounds) == 0 && row.Void == "" })
	for _, row := range rows {
		r.Doubt(row.Name, row.AllDoubts())
		if row.Void != "" {
			r.Doubt(row.Name, []string{"void: " + row.Void})
		}
	}
	r.Tables = append(r.Tables, tables(t, rows)...)
	r.Charts = append(r.Charts, charts(t, rows)...)
	for _, p := range t.Promises {
		r.Verdicts = append(r.Verdicts, p.verdicts(rows)...)
	}
	return e.Done(r), nil
}

func (e *Env) measureAll(ctx context.Context, t *Test, rows Rows, r *results.Report) error {
	stages := make([]*Stage, len(rows))
	start := func(i int) error {
		var err error
		if tool := rows[i].Tool; tool != "" && r.Versions[tool] == "" && (slices.ContainsFunc(r.Missing, func(m string) bool { return strings.HasPrefix(m, tool+":") }) || !e.Has(r, tool)) {
			return nil
		}
		stages[i], err = e.Start(ctx, rows[i].Trial)
		if errors.Is(err, rig.ErrMissing) || errors.Is(err, exec.ErrNotFound) {
			if !slices.Contains(r.Missing, err.Error()) {
				r.Missing = append(r.Missing, err.Error())
			}
			stages[i] = nil
			return nil
		}
		if err == nil {
			e.noteVersion(r, rows[i].Server.Program)
		}
		return err
	}
	round := func(i, n int) error {
		if stages[i] == nil || rows[i].Void != "" {
			return nil
		}
		e.Say("%s: %s%s", t.Kind, rows[i].Name, ofRounds(n, t.Rounds))
		if err := rows[i].measure(ctx, stages[i]); err != nil {
			return fmt.Errorf("%s: %w", rows[i].Name, err)
		}
		return nil
	}
	stop := func(i int) {
		if stages[i] != nil {
			stages[i].Stop()
		}
	}
	n := max(1, t.Rounds)
	if !t.Interleave {
		for i := range rows {
			err := start(i)
			for k := 0; k < n && err == nil; k++ {
				err = round(i, k)
			}
			stop(i)
			if err != nil {
				return err
			}
		}
		return nil
	}
	for i := range rows {
		defer stop(i)
		if err := start(i); err != nil {
			return err
		}
	}
	for k := range n + 1 {
		for i := range rows {
			if last := k == n; rows[i].Last != last {
				continue
			}
			if err := round(i, k); err != nil {
				return err
			}
		}
	}
	return nil
}

func ofRounds(n, of int) string {
	if of <= 1 || n == of {
		return ""
	}
	return fmt.Sprintf(", round %d of %d", n+1, of)
}

// measure adds a round to the row.
func (r *Row) measure(ctx context.Context, s *Stage) error {
	round := &Sample{Values: maps.Clone(r.Const), Texts: map[string]string{}}
	if round.Values == nil {
		round.Values = Values{}
	}
	for _, step := range r.Steps {
		sample, err := s.step(ctx, step)
		if err != nil {
			return err
		}
		if sample.Void != "" {
			r.Void = strings.TrimPrefix(step.Name+": "+sample.Void, ": ")
			return nil
		}
		prefix := step.Name
		if prefix != "" {
			prefix += "."
		}
		for name, v := range sample.Values {
			round.Values[prefix+name] = v
		}
		for name, text := range sample.Texts {
			round.Texts[prefix+name] = text
		}
		for _, d := range sample.Doubts {
			if !slices.Contains(r.Doubts[step.Name], d) {
				r.Doubts[step.Name] = append(r.Doubts[step.Name], d)
			}
		}
		round.Ticks = append(round.Ticks, sample.Ticks...)
	}
	for name, metric := range r.Metrics {
		v, err := s.Adbuffer.Metric(metric[0], metric[1:]...)
		if err != nil {
			return err
		}
		round.Values[name] = v
	}
	if r.Derive != nil {
		r.Derive(round)
		r.Doubts[""] = append(r.Doubts[""], round.Doubts...)
	}
	r.Rounds = append(r.Rounds, round)
	return nil
}

// step prepares, loads, and adds what the server and the SSPs had to do for it.
func (s *Stage) step(ctx context.Context, step Step) (sample *Sample, err error) {
	if step.Before != nil {
		after, err := step.Before(ctx, s)
		if err != nil {
			return nil, err
		}
		if after != nil {
			defer func() { err = errors.Join(err, after()) }()
		}
	}
	before, err := s.books()
	if err != nil {
		return nil, err
	}
	if sample, err = step.Load(ctx, s); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // a part of a table says nothing
	}
	after, err := s.books()
	if err != nil {
		return nil, err
	}
	v := sample.Values
	if v == nil {
		return sample, nil
	}
	if s.PID != 0 {
		cpu := (after.usage.CPU() - before.usage.CPU()).Seconds()
		v["cpu_s"], v["rss"], v["files"] = cpu, float64(after.usage.RSS), float64(after.usage.Files)
		if n := max(v["served"], v["answered"]); n > 0 {
			v["cpu_us"] = cpu * 1e6 / n
		}
	}
	v["ssp.connections"] = float64(after.ssp.Connections - before.ssp.Connections)
	v["ssp.handshakes"] = float64(after.ssp.Handshakes - before.ssp.Handshakes)
	v["ssp.requests"] = float64(after.ssp.Requests - before.ssp.Requests)
	v["ssp.answered"] = float64(after.ssp.Responded - before.ssp.Responded)
	v["ssp.open"], v["ssp.total"] = float64(after.ssp.OpenConnections), float64(after.ssp.Connections)
	return sample, nil
}

// Sleep waits, unless the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
