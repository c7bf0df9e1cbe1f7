package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/capacity"
	"adbuffer/internal/config"
)

// planFlags is what the command line of plan says.
type planFlags struct {
	in       capacity.PlanInput
	waiting  share
	name     string
	protocol string
	from     string
	token    string // file
	over     time.Duration
	asJSON   bool
}

// planned is one SSP of a plan.
type planned struct {
	name     string
	protocol string
	now      int // max_conns or max_http2_conns in force; 0 = not known
	measured bool
	in       capacity.PlanInput
	result   capacity.PlanResult
}

func newPlan(stdout *os.File) *cobra.Command {
	f := planFlags{in: capacity.DefaultPlanInput()}
	f.in.Replicas = 1
	f.waiting = share(f.in.WaitingShare)
	cmd := &cobra.Command{
		Use:   "plan {--rps RATE --p50 TIME --p99 TIME | --from URL}",
		Short: "Size pools from rate and latency",
		Long: `Says how many connections to an SSP each replica needs: Little's law for the places
that are busy on average (L = rate × time a place is held), exact Erlang C for how many
there must be so that no more than --waiting of the requests wait. p50 and p99 of the
SSP's latency give the mean, which is above the median, as that of a lognormal.

With --from it reads rates and hold times of every SSP from a running adbuffer's admin
listener, or from a Prometheus that scrapes adbuffer; there the mean over all instances.`,
		Example: `  adbuffer plan --rps 20000 --p50 80ms --p99 250ms --replicas 12
  adbuffer plan --rps 5000 --p50 40ms --p99 180ms --protocol http2 --waiting 1% --json
  adbuffer plan --from http://127.0.0.1:9090
  adbuffer plan --from http://prometheus:9090 --over 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.in.WaitingShare = float64(f.waiting)
			plan, err := f.plan(cmd)
			if err != nil {
				return err
			}
			if f.asJSON {
				return failed(printPlanJSON(stdout, plan))
			}
			printPlan(stdout, plan)
			return nil
		},
	}
	fl := cmd.Flags()
	fl.Float64Var(&f.in.Rate, "rps", 0, "requests per second to the SSP at peak, of all replicas together")
	fl.DurationVar(&f.in.P50, "p50", 0, "median of the SSP's latency")
	fl.DurationVar(&f.in.P99, "p99", 0, "99th percentile of the SSP's latency")
	fl.IntVar(&f.in.Replicas, "replicas", 1, "processes that share the rate; with --from, as many like the one that is asked")
	fl.StringVar(&f.protocol, "protocol", "auto", "auto, http1, http1-pipelined, http2 or h2c")
	fl.IntVar(&f.in.Streams, "streams", f.in.Streams, "requests at once on a connection, for HTTP/2 and pipelining")
	fl.Var(&f.waiting, "waiting", "share of the requests that may wait for a place")
	fl.DurationVar(&f.in.SlowHold, "slow", 0, "mean latency on a bad day (default: 2.5 × p50, or twice the mean where that is more)")
	fl.StringVar(&f.name, "ssp", "", "the SSP's name in the YAML; with --from, only this one")
	fl.IntVar(&f.in.FileDescriptors, "file-descriptors", f.in.FileDescriptors, "limit of one process (ulimit -Hn)")
	fl.IntVar(&f.in.PortsPerAddress, "ports", f.in.PortsPerAddress, "ephemeral ports of one source address")
	fl.IntVar(&f.in.SourceAddresses, "source-addresses", 0, "addresses that all replicas leave from (NAT); 0: each has its own")
	fl.IntVar(&f.in.SSPAddresses, "ssp-addresses", f.in.SSPAddresses, "addresses that the SSP answers on")
	fl.DurationVar(&f.in.MaxAge, "max-age", f.in.MaxAge, "life of a connection, pool.max_age; 0: no limit")
	fl.StringVar(&f.from, "from", "", "URL of an admin listener or of a Prometheus to read rates and hold times from")
	fl.StringVar(&f.token, "token-file", "", "with --from: a file that holds the token of an admin listener beyond loopback")
	fl.DurationVar(&f.over, "over", 0, "with --from a Prometheus: plan for the highest 5-minute rate and hold of so long (default: the last 5 minutes)")
	fl.BoolVar(&f.asJSON, "json", false, "print as JSON")
	return cmd
}

func (f *planFlags) plan(cmd *cobra.Command) ([]planned, error) {
	if !knownProtocol(f.protocol) {
		return nil, fmt.Errorf("--protocol %s: must be auto, http1, http1-pipelined, http2 or h2c", f.protocol)
	}
	given := cmd.Flags().Changed
	if f.from != "" {
		for _, name := range []string{"rps", "p50", "p99"} {
			if given(name) {
				return nil, fmt.Errorf("--%s cannot be given with --from, which reads it", name)
			}
		}
		plan, err := f.observed(cmd.Context(), given("protocol"), given("streams"))
		return plan, failed(err)
	}
	for _, name := range []string{"token-file", "over"} {
		if given(name) {
			return nil, fmt.Errorf("--%s is of use only with --from", name)
		}
	}
	var missing []string
	for _, name := range []string{"rps", "p50", "p99"} {
		if !given(name) {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s missing; or name a running adbuffer with --from", strings.Join(missing, ", "))
	}
	if f.protocol == string(config.ProtocolHTTP1Pipelined) && !given("streams") {
		f.in.Streams = defaultDepth
	}
	p := planned{name: f.name, protocol: f.protocol, in: f.in}
	if p.name == "" {
		p.name = "your-ssp"
	}
	var err error
	if p.result, err = capacity.Plan(p.in); err != nil {
		return nil, asFlags(err)
	}
	return []planned{p}, nil
}

// defaultDepth is the default of pool.pipeline_depth.
const defaultDepth = 8

func knownProtocol(p string) bool {
	switch config.Protocol(p) {
	case config.ProtocolAuto, config.ProtocolHTTP1, config.ProtocolHTTP1Pipelined, config.ProtocolHTTP2, config.ProtocolH2C:
		return true
	default:
		return false
	}
}

// asFlags makes the plan's errors speak of flags.
func asFlags(err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return err
	}
	flags := map[string]string{"waiting-share": "waiting", "slow-hold": "slow"}
	var all []string
	for _, e := range joined.Unwrap() {
		var in *capacity.InputError
		if errors.As(e, &in) {
			name := in.Name
			if renamed, ok := flags[name]; ok {
				name = renamed
			}
			all = append(all, fmt.Sprintf("--%s %s: %s", name, in.Value, in.Rule))
		} else {
			all = append(all, e.Error())
		}
	}
	return errors.New(strings.Join(all, "\n"))
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
