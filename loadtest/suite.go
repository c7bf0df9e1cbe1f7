package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/loadtest/internal/reports"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// test is a load test that makes a report.
type test struct {
	name, short, long string
	run               func(context.Context, *engine.Env) (*results.Report, error)
}

// tests in the order in which all runs them, without soak and peers, which have
// flags of their own.
var tests = []test{
	{"keepalive", "500 sequential requests: a connection each against keep-alive", "Sends 500 requests one after the other, with a connection each and with keep-alive,\nstraight to an SSP and through adbuffer, from curl, Node and the generator.", reports.KeepAlive},
	{"pipeline", "10 000 requests: pipelined, by workers, at once", "Sends 10 000 GETs as 100 pipelines of 100, from 100 workers with keep-alive, and all\nat once, straight to an SSP and through adbuffer.", reports.Pipeline},
	{"pools", "Throughput by pool size and latency, held against N / X", "Measures pools of 100 to 2 000 places against SSPs that take 10 ms to 1 s, over http,\nhttps and h2, and without a pool; and a queue that overflows. Below --scale 0.5 the\nmatrix has three sizes and three latencies.", reports.Pools},
	{"rules", "Keep-alive on and off with ab and wrk, and the ports", "Loads adbuffer with ab and wrk, with keep-alive and without, and looks at sockets in\nTIME_WAIT.", reports.Rules},
	{"adproxy", "ab without keep-alive: fastify, a fasthttp sketch, adbuffer", "Runs ab -n 1000000 with -c 100 and -c 500 on /fillbuffer of a fastify program, a\nfasthttp program and adbuffer, for constant and forwarded answers.", reports.AdProxy},
	{"sick", "One of eight SSPs is sick in eight ways", "Loads eight SSPs while one of them hangs, refuses, drops SYNs, resets, answers 503,\ndrips, is slow, or says GOAWAY, and says whether the others noticed.", reports.Sick},
	{"cold", "600 requests at once on a cold start", "Sends 600 requests at once to an adbuffer that has just started.", reports.Cold},
	{"churn", "SSPs that close connections", "Loads SSPs that close connections after 100 requests or when they idle.", reports.Churn},
	{"burst", "From nothing to the peak in two seconds", "Raises the load from nothing to its peak within two seconds, cold and warmed.", reports.Burst},
	{"endpoints", "One of two endpoints fails, beside Envoy and HAProxy", "Makes one of an SSP's two endpoints respond 500 to everything, and later repairs it. Tells what\nthat costs with ejection and without it, and at Envoy (outlier detection) and HAProxy (observe\nlayer7): set $ENVOY or see scripts/envoy.", reports.Endpoints},
	{"fairness", "One client or one SSP attacks, and the others must not feel it", "Attacks adbuffer with what a single client or a single SSP can send: bodies and lengths\nthat are claimed and do not come, streams without bodies, 429 with Retry-After. Calm and\nattacked rounds take turns; the others' success and p99 are compared.", reports.Fairness},
}

// storyTest takes seven minutes at any scale, so that all leaves it out.
var storyTest = test{"story", "A pool that gets too small, and what says so: seven minutes", "Slows an SSP down from 80 to 200 ms while requests keep coming at one rate. A real Prometheus\nscrapes adbuffer with the rules of deploy/prometheus. It must alert before the first request\nis refused, and the advised size, once set, must end the waiting.", reports.Story}

// suiteFlags are those of every load test.
type suiteFlags struct {
	scale    float64
	adbuffer string
	out      string
	json     bool
}

func (f *suiteFlags) add(cmd *cobra.Command, scale float64) {
	cmd.Flags().Float64Var(&f.scale, "scale", scale, "size of the test; 1 is that of the original measurement")
	cmd.Flags().StringVar(&f.adbuffer, "adbuffer", "", "adbuffer's `executable`; default: built from this module")
	cmd.Flags().StringVar(&f.out, "out", "", "`folder` for the results as JSON; default: printed only")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the results as JSON")
}

// with runs fn with an environment.
func (f *suiteFlags) with(ctx context.Context, stderr *os.File, fn func(*engine.Env) error) error {
	if f.scale <= 0 || f.scale > 100 {
		return fmt.Errorf("--scale %v: must be above 0 and at most 100", f.scale)
	}
	r, err := rig.New()
	if err != nil {
		return failure{err}
	}
	defer r.Close()
	e := &engine.Env{Rig: r, Adbuffer: f.adbuffer, Scale: f.scale}
	e.ProxyCores, e.LoadCores = engine.Cores()
	e.Say = func(format string, args ...any) {
		fmt.Fprintf(stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	}
	if e.Adbuffer == "" {
		e.Say("building adbuffer")
		if e.Adbuffer, err = r.Build(ctx); err != nil {
			return failure{err}
		}
	}
	if err := fn(e); err != nil {
		return failure{err}
	}
	return nil
}

// publish prints a report and saves it.
func (f *suiteFlags) publish(stdout *os.File, r *results.Report) error {
	show := func() error { return r.Markdown(stdout, 2) }
	if f.json {
		show = func() error { return r.JSON(stdout) }
	}
	if err := show(); err != nil {
		return err
	}
	if f.out == "" {
		return nil
	}
	_, err := r.Save(f.out)
	return err
}

// errBroken says that a promise did not hold; the report has said which.
var errBroken = errors.New("a promise was broken; see BROKEN above")

func newTest(t test, stdout, stderr *os.File) *cobra.Command {
	var f suiteFlags
	cmd := &cobra.Command{Use: t.name, Short: t.short, Long: t.long, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd.Context(), stderr, func(e *engine.Env) error {
				r, err := t.run(cmd.Context(), e)
				if err != nil {
					return err
				}
				if err := f.publish(stdout, r); err != nil {
					return err
				}
				if !r.Held() {
					return errBroken
				}
				return nil
			})
		}}
	f.add(cmd, 1)
	return cmd
}

func peersFlags(cmd *cobra.Command, o *reports.PeersOptions) {
	cmd.Flags().StringSliceVar(&o.Only, "only", nil, "programs to measure; default: all of "+strings.Join(reports.PeerNames(), ","))
	cmd.Flags().StringSliceVar(&o.Require, "require", nil, "programs that must be installed; others are listed as missing")
	cmd.Flags().IntVar(&o.Conns, "conns", 64, "connections to each proxy")
	cmd.Flags().Float64Var(&o.Rate, "rate", 5000, "fixed `requests/s`; 0 measures at saturation only")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "rounds, of which the median counts")
	cmd.Flags().IntVar(&o.Idle, "idle", 10000, "idle clients; 0 leaves them out")
}

func checkPeers(o reports.PeersOptions) error {
	known := strings.Join(reports.PeerNames(), ",")
	for _, list := range [][]string{o.Only, o.Require} {
		for _, name := range list {
			if !strings.Contains(","+known+",", ","+name+",") {
				return fmt.Errorf("%q: must be one of %s", name, known)
			}
		}
	}
	if o.Conns < 1 || o.Rounds < 1 || o.Idle < 0 || o.Rate < 0 {
		return errors.New("--conns and --rounds must be at least 1, --idle and --rate at least 0")
	}
	return nil
}

func newPeers(stdout, stderr *os.File) *cobra.Command {
	var f suiteFlags
	var o reports.PeersOptions
	cmd := &cobra.Command{Use: "peers", Short: "adbuffer beside nginx, HAProxy, Envoy, Caddy, net/http and fastify", Args: cobra.NoArgs,
		Long: `Measures adbuffer and its peers in one run: CPU µs a request, requests/s, latencies and
memory, at saturation (driven by wrk) and at a fixed rate (by the generator), each proxy
alone on core 0, everything else on core 1. A proxy must first return exactly the
upstream's answer, and a row with errors is void. Envoy is taken from $ENVOY or $PATH.`,
		Example: `  go run ./loadtest peers --scale 0.3
  go run ./loadtest peers --only adbuffer,haproxy --rounds 5 --rate 10000`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPeers(o); err != nil {
				return err
			}
			return f.with(cmd.Context(), stderr, func(e *engine.Env) error {
				r, err := reports.Peers(cmd.Context(), e, o)
				if err != nil {
					return err
				}
				return f.publish(stdout, r)
			})
		}}
	f.add(cmd, 1)
	peersFlags(cmd, &o)
	return cmd
}
