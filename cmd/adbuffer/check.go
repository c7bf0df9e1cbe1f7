package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"adbuffer/internal/admin"
	"adbuffer/internal/app"
	"adbuffer/internal/capacity"
	"adbuffer/internal/config"
	"adbuffer/internal/reload"
	"adbuffer/internal/sizing"
)

// checkResult is what check --json prints.
type checkResult struct {
	Valid    bool               `json:"valid"`
	Hash     string             `json:"hash,omitempty"` // of the effective configuration, as in the metric config_info
	Faults   config.Errors      `json:"faults"`
	Warnings []config.Warning   `json:"warnings"`
	Against  *reload.Difference `json:"against,omitempty"` // what a reload would change; with --against
}

// checkFlags are the flags of check.
type checkFlags struct {
	file                  string
	against               admin.ClientOptions
	load                  sizing.Input // the load that the endpoints of each priority must carry
	asJSON, quiet, reveal bool
}

func newCheck(stdout *os.File) *cobra.Command {
	f := checkFlags{load: sizing.Input{PlanInput: capacity.DefaultPlanInput()}}
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Validate a configuration, and print the effective one or its changes",
		Long: `Validates a configuration and prints the effective one: defaults filled in,
ssp_defaults merged, variables applied. Reports all errors at once, each with its path.
The exit status is 0 for a valid configuration, 1 otherwise.

Possible secrets are printed as (hidden): every value in the query of an endpoint, the
values of headers.set except for a few harmless fields, and the values of routes'
conditions with names such as token or key. --show-secrets prints them.

With --against it compares the file, with the variables of this shell, with the
configuration of a running adbuffer. It prints the changes, and how a reload would apply
them:

  in place                      from the next request on; pools, sockets, counters stay
  new connections               in place, and open connections are replaced soon
  new pool, the old one drains  the SSP has another protocol, other TLS or only other endpoints
  added, with a pool of its own / removed, its pool drains
  needs a restart               a reload would be refused, and change nothing

The exit status is 0 if a reload would apply the file or there is no difference, 1 if
there are errors, a restart is needed, or the running adbuffer does not respond. Files
that the configuration names are compared by name, not by content.

Warnings about "this machine" are about the machine, cgroup and ulimits of check itself:
its open files, memory and addresses. Those of the service may be others.

With --rps, --p50 and --p99, as in plan, or with --against and the load of its last
minute, check warns of endpoints with a higher priority number that could not carry the
load if all endpoints with lower numbers failed.`,
		Example: `  adbuffer check --config config/adbuffer.yaml
  adbuffer check --config config/adbuffer.yaml --quiet
  adbuffer check --config config/adbuffer.yaml --json
  adbuffer check --config new.yaml --against http://127.0.0.1:9090
  adbuffer check --config new.yaml --against http://10.0.0.5:9090 --token-file token
  adbuffer check --config new.yaml --against http://127.0.0.1:9090 --json | jq .against.changes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), stdout) },
	}
	addConfigFlag(cmd, &f.file)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print errors, warnings and changes as JSON")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only warnings and the result")
	cmd.Flags().BoolVar(&f.reveal, "show-secrets", false, "print possible secrets too, but no content of files")
	f.load.Replicas = 1
	cmd.Flags().Float64Var(&f.load.Rate, "rps", 0, "as in plan: requests per second to an SSP at peak, of all replicas together")
	cmd.Flags().DurationVar(&f.load.P50, "p50", 0, "as in plan: median of the SSP's latency")
	cmd.Flags().DurationVar(&f.load.P99, "p99", 0, "as in plan: 99th percentile of the SSP's latency")
	cmd.Flags().IntVar(&f.load.Replicas, "replicas", 1, "as in plan: processes that share the rate")
	cmd.Flags().StringVar(&f.load.SSP, "ssp", "", "the SSP of --rps (default: each)")
	addAdminFlags(cmd, &f.against, "against", "", "compare with a running adbuffer: URL of its admin listener")
	return cmd
}

func (f *checkFlags) run(ctx context.Context, stdout *os.File) error {
	path, err := configPath(f.file)
	if err != nil {
		return err
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	cfg, warnings, err := config.Load(path, config.OSEnv())
	var compared *reload.Difference
	if err == nil && client != nil {
		if compared, err = reload.Against(ctx, client, cfg); err != nil {
			return failed(fmt.Errorf("--against: %w", err))
		}
	}
	if err == nil {
		groups, err := f.groupWarnings(ctx, cfg, client)
		if err != nil {
			return err
		}
		warnings = append(warnings, groups...)
	}
	if f.asJSON {
		return printCheckJSON(stdout, cfg, warnings, compared, err)
	}
	if err != nil {
		return failed(err)
	}
	if !f.quiet && compared == nil {
		effective := cfg.YAML()
		if f.reveal {
			effective = cfg.YAMLWithSecrets()
		}
		fmt.Fprint(stdout, string(effective))
	}
	for _, w := range warnings {
		fmt.Fprintf(stdout, "# warning: %v\n", w)
	}
	fmt.Fprintf(stdout, "# %s is valid (SSPs: %d, routes: %d, warnings: %d)\n", path, len(cfg.SSPs), len(cfg.Routes), len(warnings))
	if compared != nil {
		compared.Write(stdout, path, app.Version, f.quiet)
	}
	return refused(compared)
}

// groupWarnings warns of endpoints that could not carry the load without the other endpoints.
// Without a load there are no warnings.
func (f *checkFlags) groupWarnings(ctx context.Context, cfg *config.Config, client *admin.Client) ([]config.Warning, error) {
	given := f.load.Rate != 0 || f.load.P50 != 0 || f.load.P99 != 0
	switch name := f.load.SSP; {
	case given && name != "" && !slices.ContainsFunc(cfg.SSPs, func(s config.SSP) bool { return s.Name == name }):
		return nil, fmt.Errorf("--ssp %s: the file has no such SSP", name)
	case given:
		return sizing.GroupWarningsFor(cfg, f.load)
	case name != "" || f.load.Replicas != 1:
		return nil, errors.New("--ssp and --replicas are for the load of --rps, --p50 and --p99")
	}
	if client == nil {
		return nil, nil
	}
	all, err := sizing.Observe(ctx, client, 0)
	if err != nil {
		return nil, failed(fmt.Errorf("--against: %w", err))
	}
	return sizing.GroupWarnings(cfg, all), nil
}

// client returns the client for --against, nil without it. It refuses flags that do
// not go together.
func (f *checkFlags) client() (*admin.Client, error) {
	against := f.against.URL != ""
	switch {
	case f.reveal && (f.asJSON || f.quiet || against):
		return nil, errors.New("--show-secrets is for the effective configuration, which --against, --json and --quiet do not print")
	case !against && f.against != (admin.ClientOptions{}):
		return nil, errors.New("--token-file, --ca-file, --cert-file, --key-file and --insecure are for --against")
	case !against:
		return nil, nil
	}
	client, err := admin.NewClient(f.against)
	if errors.Is(err, admin.ErrURL) {
		return nil, fmt.Errorf("--against %w", err)
	}
	return client, failed(err)
}

func printCheckJSON(stdout *os.File, cfg *config.Config, warnings []config.Warning, compared *reload.Difference, err error) error {
	res := checkResult{Valid: err == nil, Faults: config.Errors{}, Warnings: warnings, Against: compared}
	if res.Warnings == nil {
		res.Warnings = []config.Warning{}
	}
	if err != nil && !errors.As(err, &res.Faults) {
		return failed(err)
	}
	if cfg != nil {
		res.Hash = cfg.Hash()
	}
	if err := printJSON(stdout, res); err != nil {
		return failed(err)
	}
	if err != nil {
		return errSaid
	}
	return refused(compared)
}

// errSaid fails a command that has printed its error already.
var errSaid = failed(errors.New(""))

// refused fails the command if a reload would be refused. d may be nil.
func refused(d *reload.Difference) error {
	if d != nil && d.Verdict == reload.NeedsRestart {
		return errSaid
	}
	return nil
}
