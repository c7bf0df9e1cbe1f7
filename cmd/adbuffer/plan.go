package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/machine/capacity"
	"adbuffer/internal/operate/admin"
	"adbuffer/internal/operate/advice"
	"adbuffer/internal/ssp/dial"
)

// planFlags are the flags of plan.
type planFlags struct {
	in      advice.Input
	waiting share
	from    admin.ClientOptions
	shape   bool
	asJSON  bool
}

// anyPlan is a plan of pools or of limits.
type anyPlan interface {
	Write(w io.Writer)
	WriteJSON(w io.Writer) error
}

func newPlan(stdout *os.File) *cobra.Command {
	f := planFlags{in: advice.Input{PlanInput: capacity.DefaultPlanInput()}}
	f.in.Replicas = 1
	f.waiting = share(f.in.WaitingShare)
	cmd := &cobra.Command{
		Use:   "plan {--rps RATE --p50 TIME --p99 TIME | --admin URL [--shape]}",
		Short: "Size pools from rate and latency, and limits from fills",
		Long: `Says how many connections to an SSP each replica needs. Little's law gives the number of
places in use on average (L = rate × time that a place is held). Exact Erlang C gives the
number of places with which at most a share of --waiting of the requests must wait. The mean
latency is that of a lognormal distribution with the SSP's p50 and p99, so it is above p50.

With --admin it reads the load of every SSP from a running adbuffer's admin listener: the
busiest 10 seconds of the last minutes. A planned pool then has at least 1.2 × as many places
as were in use at once, and is never smaller than it is now.

With --shape it says instead which share of an SSP's fills qps.shape would keep at limits of 10, 20,
40, 60 and 80 % of the requests that arrive, and at qps.limit, each with its 95 % interval. That
needs qps.shape in the configuration, best with dry_run: true. Then no request is dropped because of
its score, so every fill is counted. Of the other flags only --ssp, --replicas and --json have an
effect.
`,
		Example: `  adbuffer plan --rps 20000 --p50 80ms --p99 250ms --replicas 12
  adbuffer plan --rps 5000 --p50 40ms --p99 180ms --protocol http2 --waiting 1% --json
  adbuffer plan --admin http://127.0.0.1:9090
  adbuffer plan --admin http://127.0.0.1:9090 --shape --ssp openx --replicas 12`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.in.WaitingShare = float64(f.waiting)
			plan, err := f.plan(cmd)
			if err != nil {
				return err
			}
			if f.asJSON {
				err = plan.WriteJSON(stdout)
			} else {
				plan.Write(stdout)
			}
			return failed(err)
		},
	}
	fl := cmd.Flags()
	fl.Float64Var(&f.in.Rate, "rps", 0, "requests per second to the SSP at peak, of all replicas together")
	fl.DurationVar(&f.in.P50, "p50", 0, "median of the SSP's latency")
	fl.DurationVar(&f.in.P99, "p99", 0, "99th percentile of the SSP's latency")
	fl.IntVar(&f.in.Replicas, "replicas", 1, "processes that share the rate; with --admin, replicas like the observed one")
	fl.StringVar(&f.in.Protocol, "protocol", "auto", "auto, http1, http1-pipelined, http2 or h2c")
	fl.IntVar(&f.in.Streams, "streams", f.in.Streams, "requests at once on a connection, for HTTP/2 and pipelining")
	fl.Var(&f.waiting, "waiting", "share of the requests that may wait for a place")
	fl.DurationVar(&f.in.SlowHold, "slow", 0, "mean latency on a bad day (default: 2.5 × p50, or twice the mean if that is more)")
	fl.StringVar(&f.in.SSP, "ssp", "", "the SSP's name in the YAML; with --admin, only this one")
	fl.IntVar(&f.in.FileDescriptors, "file-descriptors", f.in.FileDescriptors, "open files that one process may have (ulimit -Hn); the default with --admin is the limit of the service")
	fl.IntVar(&f.in.PortsPerAddress, "ports", f.in.PortsPerAddress, "ephemeral ports of one source address")
	fl.IntVar(&f.in.SourceAddresses, "source-addresses", 0, "source addresses that all replicas share (NAT); 0: each replica has its own")
	fl.IntVar(&f.in.SSPAddresses, "ssp-addresses", f.in.SSPAddresses, "addresses of the SSP")
	fl.IntVar(&f.in.LocalAddresses, "local-addresses", f.in.LocalAddresses, "addresses that each replica connects from, ssps[].source_addresses")
	fl.DurationVar(&f.in.MaxAge, "max-age", f.in.MaxAge, "life of a connection, pool.max_age; 0: no limit")
	addAdminFlags(cmd, &f.from, "URL of an admin listener to read rates and hold times from (default: $"+adminVariable+")")
	fl.BoolVar(&f.shape, "shape", false, "which share of the fills lower limits would keep, as qps.shape measured it")
	fl.BoolVar(&f.asJSON, "json", false, "print as JSON")
	return cmd
}

func (f *planFlags) plan(cmd *cobra.Command) (anyPlan, error) {
	if !slices.Contains(protocols, f.in.Protocol) {
		return nil, fmt.Errorf("--protocol %s: must be %s", f.in.Protocol, strings.Join(protocols, ", "))
	}
	given := cmd.Flags().Changed
	f.in.ProtocolGiven, f.in.StreamsGiven, f.in.FileDescriptorsGiven = given("protocol"), given("streams"), given("file-descriptors")
	numbers := []string{"rps", "p50", "p99"}
	if f.from.URL == "" && !slices.ContainsFunc(numbers, given) {
		f.from.URL = os.Getenv(adminVariable)
	}
	if f.from.URL != "" {
		for _, name := range numbers {
			if given(name) {
				return nil, fmt.Errorf("--%s cannot be given with --admin, which reads it", name)
			}
		}
		if f.shape {
			for _, name := range []string{"protocol", "streams", "waiting", "slow"} {
				if given(name) {
					return nil, fmt.Errorf("--%s cannot be given with --shape, which sizes no pool", name)
				}
			}
		}
		plan, err := f.observe(cmd.Context())
		return plan, failed(err)
	}
	if f.shape {
		return nil, errors.New("--shape needs --admin, the URL of an adbuffer that measured the fills")
	}
	if f.from != (admin.ClientOptions{}) {
		return nil, errors.New("--token-file, --ca-file, --cert-file, --key-file and --insecure are for --admin")
	}
	var missing []string
	for _, name := range numbers {
		if !given(name) {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s missing; or name a running adbuffer with --admin", strings.Join(missing, ", "))
	}
	return advice.FromNumbers(f.in)
}

// protocols are the values of --protocol.
var protocols = []string{
	string(dial.Auto), string(dial.HTTP1), string(dial.HTTP1Pipelined), string(dial.HTTP2), string(dial.H2C),
}

func (f *planFlags) observe(ctx context.Context) (anyPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	f.from.URL = strings.TrimSuffix(f.from.URL, "/pools")
	client, err := newClient(&f.from)
	if err != nil {
		return nil, err
	}
	if f.shape {
		return advice.ObserveShapes(ctx, client, f.in)
	}
	observed, err := advice.Observe(ctx, client)
	if err != nil {
		return nil, err
	}
	return advice.FromObserved(f.in, f.from.URL, observed)
}

// share is a share between 0 and 1, given as 3% or 0.03.
type share float64

func (s *share) String() string { return strconv.FormatFloat(float64(*s)*100, 'g', 4, 64) + "%" }

func (s *share) Type() string { return "share" }

func (s *share) Set(text string) error {
	digits, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
	if err != nil {
		return errors.New("write 3% or 0.03")
	}
	if percent {
		v /= 100
	}
	*s = share(v)
	return nil
}
