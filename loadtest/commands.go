package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/chaos"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
	"adbuffer/loadtest/internal/tests"
)

// suite holds the flags of the load tests.
type suite struct {
	stdout, stderr *os.File

	scale    float64
	adbuffer string
	out      string
	json     bool

	soak   int // requests
	chaos  chaos.Options
	sizing tests.SizingOptions

	incident string // only the incidents with this text in their names
	peers    tests.PeersOptions
	readme   string // file whose marked part becomes the tables of peers; "" is none
}

// loadTest is a load test and its own flags.
type loadTest struct {
	tests.Command
	example string
	alone   bool // it takes minutes at any scale, so that the command all leaves it out
	flags   func(*cobra.Command)
	check   func(*cobra.Command) error // nil: no check
}

// commands returns the load tests in the order in which the command all runs them.
func (s *suite) commands() (out []loadTest) {
	for _, t := range tests.Commands {
		out = append(out, loadTest{Command: t})
	}
	return append(out,
		loadTest{Command: tests.Command{Name: "soak",
			Short: "A million requests each way to a real nginx, every one accounted for",
			Long: `Sends a million requests each over HTTP/1, HTTP/1 pipelined at depth 8 and at depth 64,
and HTTP/2 through adbuffer to an nginx that closes connections after 1 000 requests.
Each response must carry its request's number, and nginx's log each number exactly once;
the exit status is 1 if one does not. It needs nginx.`,
			Run: func(ctx context.Context, e *stage.Env) (*results.Report, error) {
				return tests.Soak(ctx, e, s.soak)
			}},
			example: "  go run ./loadtest soak --requests 1000000\n  go run ./loadtest soak --scale 0.01 --json",
			flags: func(c *cobra.Command) {
				c.Flags().IntVar(&s.soak, "requests", 0, "requests each way; default: a million times --scale")
			},
			check: func(c *cobra.Command) error {
				if s.soak < 0 || c.Flags().Changed("requests") && s.soak == 0 {
					return errors.New("--requests: must be at least 1")
				}
				return nil
			}},
		loadTest{Command: tests.Command{Name: "chaos",
			Short: "Everything at once: failing SSPs, hostile clients, reloads, hand-overs",
			Long: `Sends mixed traffic over HTTP/1, pipelined, TLS and HTTP/2 in all five modes to SSPs whose
behaviour changes all the time, beside hostile clients, reloads and hand-overs. Each request
carries a number that its response must echo, and SSPs count the POSTs that they process.
Now and then all clients pause, and what adbuffer still holds is measured. The exit status
is 1 if a promise was broken.`,
			Run: func(ctx context.Context, e *stage.Env) (*results.Report, error) {
				return chaos.Run(ctx, e, s.chaos)
			}},
			example: "  go run ./loadtest chaos --for 30m\n  go run ./loadtest chaos --for 2m --seed 42",
			flags:   s.chaosFlags, check: s.checkChaos},
		loadTest{Command: tests.Command{Name: "peers",
			Short: "adbuffer beside nginx, HAProxy, Envoy, Caddy, net/http and fastify",
			Long: `Measures adbuffer and its peers in one run, towards upstreams and towards clients: CPU µs a
request, requests/s, latencies and memory, at saturation (driven by wrk and h2load) and at
fixed rates (by the generator), each proxy alone on core 0, everything else on core 1. Rounds
of all proxies take turns. A proxy must first return exactly the upstream's response, and a row
with errors is void. Envoy is taken from $ENVOY or $PATH. The exit status is 1 if a promise was
broken. --readme writes the table of a README: medians of the rounds, with the least and the most.`,
			Run: s.comparePeers},
			example: "  go run ./loadtest peers --scale 0.3\n  go run ./loadtest peers --rounds 5 --readme README.md\n" +
				"  go run ./loadtest peers --only adbuffer,haproxy --rounds 5 --rate 10000",
			flags: s.peersFlags, check: s.checkPeers},
		loadTest{Command: tests.Story, alone: true}, loadTest{Command: tests.Incidents(&s.incident), alone: true,
			example: "  go run ./loadtest incidents\n  go run ./loadtest incidents --only overload",
			flags: func(c *cobra.Command) {
				c.Flags().StringVar(&s.incident, "only", "", "only the incidents with this `text` in their names")
			}},
		loadTest{Command: tests.Command{Name: "sizing",
			Short: "Pools that size themselves, beside Envoy's adaptive concurrency: five minutes",
			Long: `Loads a pool that sizes itself (pool.auto) with five courses: a step of the load, an SSP that
is full, one that becomes slower, a flash and an outage. Envoy with adaptive concurrency gets the
same at the same time, and the simulation of internal/sizer too. One table has their figures.
Envoy is taken from $ENVOY or $PATH. --low adds a low load, in which no limit may change. --scale
has no effect. The exit status is 1 if a promise was broken.`,
			Run: func(ctx context.Context, e *stage.Env) (*results.Report, error) {
				return tests.Sizing(ctx, e, s.sizing)
			}},
			example: "  ENVOY=$(scripts/envoy) go run ./loadtest sizing\n  go run ./loadtest sizing --low 1h",
			alone:   true,
			flags: func(c *cobra.Command) {
				c.Flags().IntVar(&s.sizing.Courses, "courses", 20, "courses of the simulation, of which the median counts")
				c.Flags().StringVar(&s.sizing.Only, "only", "", "only the courses with this `text` in their names")
				c.Flags().DurationVar(&s.sizing.Low, "low", 20*time.Second, "how long a low load lasts; 0 leaves it out")
			},
			check: func(*cobra.Command) error {
				if s.sizing.Courses < 1 || s.sizing.Low < 0 {
					return errors.New("--courses must be at least 1, --low at least 0")
				}
				return nil
			}})
}

// comparePeers compares the peers, and writes the table of a README if one is named.
func (s *suite) comparePeers(ctx context.Context, e *stage.Env) (*results.Report, error) {
	r, err := tests.Peers(ctx, e, s.peers)
	if err == nil && s.readme != "" {
		err = results.WriteMeasured([]*results.Report{r}, s.readme)
	}
	return r, err
}

func (s *suite) chaosFlags(c *cobra.Command) {
	s.chaos = chaos.Options{Allowance: chaos.DefaultAllowance, Patience: chaos.DefaultPatience,
		Think: chaos.DefaultThink}
	c.Flags().DurationVar(&s.chaos.For, "for", 0, "how long; default: 20 minutes times --scale")
	c.Flags().Uint64Var(&s.chaos.Seed, "seed", 0, "of all that is drawn; default: drawn and printed")
	c.Flags().DurationVar(&s.chaos.Allowance, "allowance", s.chaos.Allowance,
		"how much later than its deadline a response may come")
	c.Flags().DurationVar(&s.chaos.Patience, "patience", s.chaos.Patience,
		"how long a healthy SSP may take to respond; a slow machine needs more")
	c.Flags().StringVar(&s.chaos.Only, "only", "", "only the attacks and the SSPs' behaviours with this `text` in their names")
	c.Flags().BoolVar(&s.chaos.Overload, "overload", false, "adbuffer may refuse requests while it has too little CPU")
	c.Flags().DurationVar(&s.chaos.Think, "think", s.chaos.Think, "a client's mean pause between two requests")
}

func (s *suite) checkChaos(c *cobra.Command) error {
	if c.Flags().Changed("for") && s.chaos.For < chaos.LeastLength {
		return fmt.Errorf("--for %v: must be at least %v", s.chaos.For, chaos.LeastLength)
	}
	if s.chaos.Allowance < 0 || s.chaos.Patience < time.Millisecond || s.chaos.Think < time.Millisecond {
		return errors.New("--allowance must be at least 0, --patience and --think at least 1ms")
	}
	return nil
}

func (s *suite) peersFlags(c *cobra.Command) {
	o := &s.peers
	c.Flags().StringSliceVar(&o.Only, "only", nil,
		"programs to measure; default: all of "+strings.Join(tests.PeerNames(), ","))
	c.Flags().StringSliceVar(&o.Require, "require", nil,
		"programs that must be installed; others are listed as missing")
	c.Flags().IntVar(&o.Conns, "conns", 64, "connections to each proxy")
	c.Flags().Float64Var(&o.Rate, "rate", 5000, "fixed `requests/s`; 0 measures at saturation only")
	c.Flags().IntVar(&o.Rounds, "rounds", 3, "rounds, of which the median counts")
	c.Flags().IntVar(&o.Idle, "idle", 10000, "idle clients; 0 leaves them out")
	c.Flags().StringVar(&o.Profile, "profile", "", "`file` for a CPU profile of adbuffer, with which go build optimizes it")
	c.Flags().StringVar(&s.readme, "readme", "", "Markdown `file` whose marked part becomes the tables of the comparison")
}

func (s *suite) checkPeers(*cobra.Command) error {
	o, known := s.peers, tests.PeerNames()
	for _, name := range slices.Concat(o.Only, o.Require) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%q: must be one of %s", name, strings.Join(known, ","))
		}
	}
	if o.Conns < 1 || o.Rounds < 1 || o.Idle < 0 || o.Rate < 0 {
		return errors.New("--conns and --rounds must be at least 1, --idle and --rate at least 0")
	}
	return nil
}

// add adds the flags that every load test has.
func (s *suite) add(cmd *cobra.Command, scale float64) {
	cmd.Flags().Float64Var(&s.scale, "scale", scale, "size of the test; 1 is that of the original measurement")
	cmd.Flags().StringVar(&s.adbuffer, "adbuffer", "", "adbuffer's `executable`; default: built from this module")
	cmd.Flags().StringVar(&s.out, "out", "", "`folder` for the results as JSON; default: printed only")
	cmd.Flags().BoolVar(&s.json, "json", false, "print the results as JSON")
}

// cobra makes the command of a test.
func (t loadTest) cobra(s *suite) *cobra.Command {
	cmd := &cobra.Command{Use: t.Name, Short: t.Short, Long: t.Long, Example: t.example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if t.check != nil {
				if err := t.check(cmd); err != nil {
					return err
				}
			}
			return s.with(cmd.Context(), func(e *stage.Env) error { return s.one(cmd.Context(), e, t) })
		}}
	s.add(cmd, 1)
	if t.flags != nil {
		t.flags(cmd)
	}
	return cmd
}

// with runs fn with an environment.
func (s *suite) with(ctx context.Context, fn func(*stage.Env) error) error {
	if s.scale <= 0 || s.scale > 100 {
		return fmt.Errorf("--scale %v: must be above 0 and at most 100", s.scale)
	}
	r, err := rig.New()
	if err != nil {
		return failure{err}
	}
	defer r.Close()
	e := &stage.Env{Rig: r, Adbuffer: s.adbuffer, Scale: s.scale, Say: func(format string, args ...any) {
		fmt.Fprintf(s.stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	}}
	e.ProxyCores, e.LoadCores = stage.Cores()
	if err := e.Build(ctx); err != nil {
		return failure{err}
	}
	if err := fn(e); err != nil {
		return failure{err}
	}
	return nil
}

// errBroken means that a promise did not hold. The report names it.
var errBroken = errors.New("a promise was broken; see BROKEN above")

// one runs a test, prints its report and saves it.
func (s *suite) one(ctx context.Context, e *stage.Env, t loadTest) error {
	r, err := t.Run(ctx, e)
	if err != nil {
		return err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	if s.json {
		err = r.JSON(s.stdout)
	} else {
		_, err = fmt.Fprint(s.stdout, r.Markdown())
	}
	if err == nil && s.out != "" {
		err = r.Save(s.out)
	}
	if err == nil && !r.Held() {
		err = errBroken
	}
	return err
}

func newAll(s *suite) *cobra.Command {
	cmd := &cobra.Command{Use: "all", Short: "Everything, one after the other, and the report", Args: cobra.NoArgs,
		Long: `Runs the five field reports, sick, cold, churn, burst, endpoints, fairness, overload, soak, chaos and
peers, and writes report.md beside the results. A test that fails is named at
the end and does not keep the others from running. The exit status is 1 if one failed or a
promise was broken.`,
		Example: `  go run ./loadtest all --scale 0.1 --require nginx,haproxy,caddy,fastify`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.checkPeers(cmd); err != nil {
				return err
			}
			if s.out == "" {
				return errors.New("--out: the report needs a folder")
			}
			return s.with(cmd.Context(), func(e *stage.Env) error { return s.everything(cmd.Context(), e) })
		}}
	s.add(cmd, 0.1)
	s.peersFlags(cmd)
	s.chaosFlags(&cobra.Command{}) // their defaults
	if err := errors.Join(cmd.Flags().Set("out", "loadtest/results"), cmd.Flags().Set("rounds", "1")); err != nil {
		panic(fmt.Sprintf("BUG: %v", err))
	}
	cmd.Flags().Lookup("out").DefValue, cmd.Flags().Lookup("rounds").DefValue = "loadtest/results", "1"
	return cmd
}

func (s *suite) everything(ctx context.Context, e *stage.Env) error {
	var errs []error
	for _, t := range s.commands() {
		if t.alone {
			continue
		}
		if err := s.one(ctx, e, t); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Name, err))
		}
		// Processes that a test did not stop must not disturb the next test.
		e.Rig.StopAll()
		if ctx.Err() != nil {
			break
		}
	}
	file, err := results.Write(s.out, s.out)
	if err == nil {
		e.Say("wrote %s", file)
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
