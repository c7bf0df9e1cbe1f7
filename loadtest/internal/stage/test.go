package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// Test describes a load test: its trials, its tables and charts, and its promises.
type Test struct {
	Kind, Title, Question string
	Needs                 []string // programs that the test requires
	Notes                 []string
	Missing               []string // programs that are not measured, with the reason

	Trials []Trial
	Rounds int // rounds of each trial; 0 is 1
	// Interleave starts all trials first and then measures one round of each in turn. So changes of the
	// machine's speed affect all trials alike. Otherwise one trial ends before the next one starts.
	Interleave bool

	Tables   []Table
	Charts   []Chart
	Promises []Promise
}

// Trial is one measured setup. It becomes a row of a table.
type Trial struct {
	Name          string
	Group         string   // tables and charts show the trials of one group
	Cells         []any    // first cells of the row; if there is none, Name
	Label, Series string   // in bar charts; "" is Name and the series of the chart
	Line          string   // prefix of the series in line charts
	X             float64  // of its point in line charts
	Tags          []string // selected by Chart.Only
	Base          string   // name of the trial for "base:" in expressions
	Const         Values   // values in addition to the measurements

	SSPs    []*SSP
	Server  Server
	Tool    string              // load tool; without it the trial is omitted
	Metrics map[string][]string // value name to metric name and labels; read at the end of a round
	Steps   []Step
	Repeat  int           // rounds of this trial; 0 is Test.Rounds, which an interleaved test has for all
	Derive  func(*Sample) // adds values to a round; may be nil
	// Last measures the trial once, after all rounds of the other trials.
	Last bool
}

// Server is the server that a trial loads.
type Server struct {
	// Program is a program of package rig, "direct" for an SSP, or "" for adbuffer.
	Program string
	Route   *rig.Route // route of Program; Start starts it unless it runs
	Config  Config     // configuration of adbuffer
	OneCore bool       // adbuffer may use one thread at a time
	// Shared is a process for several trials with the same configuration. The first trial starts it,
	// and it runs until the end of the test. Nil starts a process for this trial.
	Shared *Shared
	// Anywhere lets the server run on cores other than Env.ProxyCores.
	Anywhere bool
	// URL is a running server. CAFile and PID, which may be empty, belong to it.
	URL, CAFile string
	PID         int
	SSP         string // name of the SSP for "direct"; "" is the first
}

// Shared is an adbuffer for several trials.
type Shared struct{ process *rig.Adbuffer }

// Step is one measurement of a round. Its values are named NAME.p99, or p99 if the step has no name.
type Step struct {
	Name string
	// Before prepares the stage. It returns a function to call after the load, or nil.
	Before func(context.Context, *Stage) (after func() error, err error)
	Load   Driver
}

// Beside returns a Step.Before that runs fn beside the load. After the load it cancels the context of fn
// and waits for its end.
func Beside(fn func(context.Context, *Stage) error) func(context.Context, *Stage) (func() error, error) {
	return func(ctx context.Context, s *Stage) (func() error, error) {
		ctx, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- fn(ctx, s) }()
		return func() error { stop(); return <-ended }, nil
	}
}

// Driver loads a stage and returns its measurements.
type Driver func(context.Context, *Stage) (*Sample, error)

// Values are measurements by name.
type Values map[string]float64

// Sample holds the measurements of a step or a round.
type Sample struct {
	Values Values
	Texts  map[string]string
	Doubts []string // reasons for not trusting the values
	Void   string   // reason why there are no values
	Ticks  []load.Tick
}

// Row is a trial with the measurements of its rounds.
type Row struct {
	*Trial
	Rounds []*Sample
	Doubts map[string][]string // for each step
	Void   string
}

// AllDoubts returns the doubts about all steps.
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

// Run executes a test and returns its report.
func Run(ctx context.Context, e *Env, t *Test) (*results.Report, error) {
	r := e.Report(t.Kind, t.Title, t.Question)
	r.Missing = t.Missing
	for _, program := range t.Needs {
		if _, err := rig.Find(program); err != nil {
			return nil, err
		}
		noteVersion(r, program)
	}
	var rows Rows
	for i := range t.Trials {
		rows = append(rows, &Row{Trial: &t.Trials[i], Doubts: map[string][]string{}})
	}
	if err := e.measureAll(ctx, t, rows, r); err != nil {
		return nil, err
	}
	r.Notes = t.Notes // trials may have added notes
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
	return r, nil
}

// measureAll measures all rounds of all trials, or of one trial after the other.
func (e *Env) measureAll(ctx context.Context, t *Test, rows Rows, r *results.Report) error {
	together := 1
	if t.Interleave {
		together = max(1, len(rows))
	}
	for batch := range slices.Chunk(rows, together) {
		if err := e.measureBatch(ctx, t, batch, r); err != nil {
			return err
		}
	}
	return nil
}

// measureBatch starts some trials, measures one round of each in turn, and stops them.
func (e *Env) measureBatch(ctx context.Context, t *Test, rows Rows, r *results.Report) error {
	stages := map[*Row]*Stage{}
	for _, row := range rows {
		s, err := e.Start(ctx, row.Trial)
		if errors.Is(err, rig.ErrMissing) {
			if !slices.Contains(r.Missing, err.Error()) {
				r.Missing = append(r.Missing, err.Error())
			}
			continue
		}
		if err != nil {
			return err
		}
		defer s.Stop()
		stages[row] = s
		noteVersion(r, row.Server.Program)
		noteVersion(r, row.Tool)
	}
	rounds := max(1, cmp.Or(rows[0].Repeat, t.Rounds))
	for n := range rounds + 1 {
		for _, row := range rows {
			if last := n == rounds; row.Last != last || stages[row] == nil || row.Void != "" {
				continue
			}
			if rounds > 1 && !row.Last {
				e.Say("%s: %s, round %d of %d", t.Kind, row.Name, n+1, rounds)
			} else {
				e.Say("%s: %s", t.Kind, row.Name)
			}
			if err := row.measure(ctx, stages[row]); err != nil {
				return fmt.Errorf("%s: %w", row.Name, err)
			}
		}
	}
	return nil
}

// measure measures one round and adds it to the row.
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

// step executes a step. It adds the resource use of the server and the counters of the SSPs.
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
		return nil, ctx.Err() // an interrupted test has no report
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
		cpu := (after.usage.CPU - before.usage.CPU).Seconds()
		v["cpu_s"], v["rss"], v["files"] = cpu, float64(after.usage.RSS), float64(after.usage.Files)
		if n := max(v["served"], v["answered"]); n > 0 {
			v["cpu_us"] = cpu * 1e6 / n
		}
	}
	v["ssp.connections"] = float64(after.ssp.Connections - before.ssp.Connections)
	v["ssp.handshakes"] = float64(after.ssp.Handshakes - before.ssp.Handshakes)
	v["ssp.answered"] = float64(after.ssp.Responded - before.ssp.Responded)
	v["ssp.open"], v["ssp.total"] = float64(after.ssp.OpenConnections), float64(after.ssp.Connections)
	return sample, nil
}

// Sleep waits for d or until the context ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
