package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"adbuffer/loadtest/internal/chaos"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/tests"
)

// suite has the flags of all load tests.
type suite struct {
	stdout, stderr *os.File

	scale    float64
	adbuffer string
	out      string
	json     bool
}

func loadTests() []tests.Command { return append(tests.Commands(), chaos.Command()) }

func (s *suite) addFlags(f *pflag.FlagSet, scale float64) {
	f.Float64Var(&s.scale, "scale", scale, "size of the test; 1 is that of the original measurement")
	f.StringVar(&s.adbuffer, "adbuffer", "", "adbuffer's `executable`; default: built from this module")
	f.StringVar(&s.out, "out", "", "`folder` for the results as JSON; default: printed only")
	f.BoolVar(&s.json, "json", false, "print the results as JSON")
}

func newTest(s *suite, t tests.Command) *cobra.Command {
	long := strings.TrimSpace(t.Question + "\n\n" + t.Long)
	cmd := &cobra.Command{Use: t.Name, Short: t.Short, Long: long, Example: t.Example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.Check != nil {
				if err := t.Check(cmd.Flags()); err != nil {
					return err
				}
			}
			return s.with(cmd.Context(), func(r *rig.Rig) error { return s.one(cmd.Context(), r, t) })
		}}
	s.addFlags(cmd.Flags(), 1)
	if t.Flags != nil {
		t.Flags(cmd.Flags())
	}
	return cmd
}

// with runs fn with a rig that has adbuffer.
func (s *suite) with(ctx context.Context, fn func(*rig.Rig) error) error {
	if s.scale <= 0 || s.scale > 100 {
		return fmt.Errorf("--scale %v: must be above 0 and at most 100", s.scale)
	}
	return withRig(s.stderr, s.adbuffer, func(r *rig.Rig) error {
		r.Scale = s.scale
		r.Separate()
		if err := r.Do(ctx, r.Build); err != nil {
			return err
		}
		return fn(r)
	})
}

// withRig runs fn with a rig of scale 1, which prints what it does. Its error is a failure.
func withRig(stderr *os.File, adbuffer string, fn func(*rig.Rig) error) error {
	r, err := rig.New(func(format string, args ...any) {
		fmt.Fprintf(stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	})
	if err != nil {
		return failure{err}
	}
	defer r.Close()
	r.Adbuffer = adbuffer
	if err := fn(r); err != nil {
		return failure{err}
	}
	return nil
}

// errBroken means that a promise did not hold. The report names it.
var errBroken = errors.New("a promise was broken; see BROKEN above")

// one runs a test, prints its report and saves it.
func (s *suite) one(ctx context.Context, r *rig.Rig, t tests.Command) error {
	err := r.Do(ctx, func() {
		r.Report(t.Name, t.Short, t.Question)
		t.Test(r)
	})
	if err != nil {
		return err
	}
	rep := r.Rep
	rep.Seconds = time.Since(rep.Started).Seconds()
	if s.json {
		err = rep.JSON(s.stdout)
	} else {
		_, err = fmt.Fprint(s.stdout, rep.Markdown())
	}
	if err == nil && s.out != "" {
		err = rep.Save(s.out)
	}
	if err == nil && !rep.Held() {
		err = errBroken
	}
	return err
}

func newAll(s *suite) *cobra.Command {
	all := loadTests()
	cmd := &cobra.Command{Use: "all", Short: "Everything, one after the other, and the report", Args: cobra.NoArgs,
		Long: `Runs all load tests but story, incidents and sizing, and writes report.md beside the results. A
test that fails is named at the end and does not keep the others from running. The exit status
is 1 if one failed or a promise was broken.`,
		Example: `  go run ./loadtest all --scale 0.1 --require nginx,haproxy,caddy,fastify`}
	s.addFlags(cmd.Flags(), 0.1)
	var check func(*pflag.FlagSet) error
	for _, t := range all {
		switch {
		case t.Name == "peers":
			t.Flags(cmd.Flags())
			check = t.Check
		case t.Flags != nil:
			t.Flags(new(pflag.FlagSet)) // sets their defaults
		}
	}
	for name, value := range map[string]string{"out": "loadtest/results", "rounds": "1"} {
		if err := cmd.Flags().Set(name, value); err != nil {
			panic(fmt.Sprintf("BUG: %v", err))
		}
		cmd.Flags().Lookup(name).DefValue = value
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := check(cmd.Flags()); err != nil {
			return err
		}
		if s.out == "" {
			return errors.New("--out: the report needs a folder")
		}
		return s.with(cmd.Context(), func(r *rig.Rig) error { return s.everything(cmd.Context(), r, all) })
	}
	return cmd
}

func (s *suite) everything(ctx context.Context, r *rig.Rig, all []tests.Command) error {
	var errs []error
	for _, t := range all {
		if t.Alone {
			continue
		}
		if err := s.one(ctx, r, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Name, err))
		}
		// Processes that a test did not stop must not disturb the next test.
		r.StopAll()
		if ctx.Err() != nil {
			break
		}
	}
	file, err := results.Write(s.out, s.out)
	if err == nil {
		r.Say("wrote %s", file)
	}
	return errors.Join(append(errs, err)...)
}

func newReport(stdout *os.File) *cobra.Command {
	var in, out string
	var readmes []string
	cmd := &cobra.Command{Use: "report", Short: "The results of a folder as Markdown", Args: cobra.NoArgs,
		Long: `Turns the results of a folder into report.md. With --readme it also writes the tables of
peers between the markers of Markdown files.`,
		RunE: func(*cobra.Command, []string) error {
			if out == "" {
				out = in
			}
			if err := writeReport(stdout, in, out, readmes); err != nil {
				return failure{err}
			}
			return nil
		}}
	cmd.Flags().StringVar(&in, "results", "loadtest/results", "`folder` with the results")
	cmd.Flags().StringVar(&out, "out", "", "`folder` for the report; default: that of the results")
	cmd.Flags().StringSliceVar(&readmes, "readme", nil, "Markdown `files` whose marked part becomes the tables of peers")
	return cmd
}

// writeReport writes report.md of the results in a folder, and the tables of peers into other files. It
// prints their names.
func writeReport(stdout *os.File, in, out string, readmes []string) error {
	file, err := results.Write(in, out)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, file)
	reports, err := results.LoadAll(in)
	if err != nil {
		return err
	}
	for _, readme := range readmes {
		if err := results.WriteMeasured(reports, readme); err != nil {
			return err
		}
		fmt.Fprintln(stdout, readme)
	}
	return nil
}
