package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/app/app"
	"adbuffer/internal/operate/admin"
	"adbuffer/internal/operate/replay"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
)

// checkFlags are the flags of check.
type checkFlags struct {
	file                             string
	against                          admin.ClientOptions
	asJSON, quiet, effective, reveal bool
	trafficFlags
}

// trafficFlags say how a configuration is tried on the sampled traffic.
type trafficFlags struct {
	traffic   bool
	maxChange string
}

func newCheck(stdout, stderr *os.File) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate a configuration, and print the effective one or its changes",
		Long: `Validates a configuration. Reports all errors at once, each as file:line:column, path,
value and rule. The exit status is 0 for a valid configuration, 1 otherwise.

With --effective it prints the effective configuration: defaults filled in, ssp_defaults
merged, variables applied. Possible secrets are printed as (hidden): every value in the
query of an endpoint, the values of headers.set except for a few harmless fields, and the
values of routes' conditions with names such as token or key. --show-secrets prints them.

With --admin, or with $` + adminVariable + ` and without --effective, it sends the file to a
running adbuffer, which validates the file with its own variables and files, and compares
it with the configuration in force. This changes nothing. check prints the differences, and
how a reload would apply them:

  in place                      from the next request on; pools, sockets, counters stay
  new connections               in place, and open connections are replaced soon
  new pool, the old one drains  the SSP has another protocol, other TLS or only other endpoints
  added, with a pool of its own / removed, its pool drains
  needs a restart               a reload would be refused, and change nothing

The exit status is 0 if a reload would apply the file, or if there is no difference. It is 1
after errors, if a restart is needed, or if the running adbuffer does not respond. A changed
secret is a difference too, as is changed content of a certificate or token file; no secret
is shown. Relative paths in the file are relative to the running adbuffer's directory.

Warnings about "this machine" are about the open files, memory and addresses of check's own
machine, cgroup and ulimits. With --admin, they are about those of the running adbuffer.

If the running adbuffer does not respond, check first says whether the file is valid here, with
the variables and files of its own machine.

With --traffic, the running adbuffer also takes the requests that it has sampled (admin.sample)
through the file: matching, conditions, edits and deadlines, as for real requests. check prints
what each route and SSP gets now and would get then, with the 95 % interval that follows from the
number of sampled requests; what would be filtered, edited, over qps.limit, or have less time; how
many places each pool needs in its busiest minute; and the requests that would end differently,
with ids of examples. The exit status is also 1 if nothing is sampled or can be judged, if a pool
would be full, or if a route or an SSP would get more or fewer requests than --max-change allows,
by default as many as admin.sample.max_change of the running adbuffer allows; requests that
qps.limit refuses are left out. With --json, traffic.exceeded has the reasons. No SSP gets a
request. An SSP of a waterfall fills as often as in the sample; one that the sample never saw
asked counts as never filling.

With --admin, check also warns of spare endpoints (those with a higher priority number)
that could not carry the load of the last minute if all endpoints with lower numbers failed.`,
		Example: `  adbuffer check config/adbuffer.yaml
  adbuffer check config/adbuffer.yaml --effective
  adbuffer check config/adbuffer.yaml --json
  adbuffer check new.yaml --admin http://127.0.0.1:9090
  adbuffer check new.yaml --admin http://10.0.0.5:9090 --token-file token
  adbuffer check new.yaml --admin http://127.0.0.1:9090 --traffic --max-change 10%
  adbuffer check new.yaml --admin http://127.0.0.1:9090 --json | jq .against.changes`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: yamlFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if f.file != "" {
					return fmt.Errorf("%s and --config %s name two files; give one", args[0], f.file)
				}
				f.file = args[0]
			}
			return f.run(cmd.Context(), stdout, stderr)
		},
	}
	addConfigFlag(cmd, &f.file)
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print errors, warnings and changes as JSON")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "print only warnings and the result")
	cmd.Flags().BoolVar(&f.effective, "effective", false, "print the effective configuration")
	cmd.Flags().BoolVar(&f.reveal, "show-secrets", false, "like --effective, but with possible secrets; the content of files is not printed")
	cmd.Flags().BoolVar(&f.traffic, "traffic", false, "with --admin: say what the file would do to the traffic that the running adbuffer has sampled")
	cmd.Flags().StringVar(&f.maxChange, "max-change", "", "with --traffic: the largest change of a route's or an SSP's rate with exit status 0, such as 10%, or any")
	addAdminFlags(cmd, &f.against, "compare with a running adbuffer: URL of its admin listener (default: $"+adminVariable+")")
	return cmd
}

func (f *checkFlags) run(ctx context.Context, stdout, stderr *os.File) error {
	path, err := configPath(f.file)
	if err != nil {
		return err
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	limit, err := f.limit()
	if err == nil && f.traffic && client == nil {
		err = errors.New("--traffic needs --admin: the running adbuffer has the traffic")
	}
	if err != nil {
		return err
	}
	text, err := config.Read(path)
	if err != nil {
		return failed(err)
	}
	var cfg *config.Config
	res := new(replay.Check)
	var unasked error // why the running adbuffer has not checked the file
	if client != nil {
		res, unasked = dryRun(ctx, client, path, text, f.traffic)
	}
	if client == nil || unasked != nil {
		cfg, res.Check = checkHere(path, text)
	}
	if res.Traffic != nil && f.maxChange != "" {
		res.Traffic.Exceeded = append([]string{}, res.Traffic.Excess(replay.Limit{Share: limit, Setting: "--max-change"})...)
	}
	if f.asJSON {
		err = printJSON(stdout, res)
	} else {
		err = f.print(stdout, path, cfg, res.Check)
	}
	if err == nil && res.Traffic != nil && f.judge(stdout, stderr, res.Traffic) {
		err = errPrinted
	}
	if err == nil && unasked == nil && (!res.Valid || res.Against != nil && res.Against.Verdict == reload.NeedsRestart) {
		err = errPrinted
	}
	return failed(errors.Join(err, unasked))
}

// limit returns the value of --max-change as a share.
func (f *trafficFlags) limit() (float64, error) {
	switch {
	case f.maxChange != "" && !f.traffic:
		return 0, errors.New("--max-change needs --traffic")
	case f.maxChange == "" || f.maxChange == "any":
		return math.Inf(1), nil
	}
	number, ok := strings.CutSuffix(f.maxChange, "%")
	limit, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(limit >= 0 && limit <= 1e6) {
		return 0, fmt.Errorf("--max-change %q must be a share such as 10%%, or any", f.maxChange)
	}
	return limit / 100, nil
}

// judge prints what the report says, and reports whether the change exceeds what it may. With --json the report is
// printed already, and with --quiet not at all.
func (f *checkFlags) judge(stdout, stderr *os.File, r *replay.Report) (exceeds bool) {
	reasons := stdout
	switch {
	case f.asJSON:
		reasons = stderr
	case !f.quiet:
		r.Write(stdout)
	}
	r.WriteExceeded(reasons)
	return len(r.Exceeded) > 0
}

// dryRun returns what the running adbuffer says about text, the content of the file at path.
func dryRun(ctx context.Context, client *admin.Client, path string, text []byte, traffic bool) (*replay.Check, error) {
	if len(text) == 0 {
		text = []byte("\n") // a request without a body would be refused as a mistake
	}
	target, timeout := "/reload?dry_run=1", dryRunTimeout
	if traffic {
		target, timeout = target+"&traffic=1", trafficTimeout
	}
	res := &replay.Check{Check: new(reload.Check)}
	err := ask(ctx, client, timeout, http.MethodPost, target, text, res, http.StatusUnprocessableEntity)
	if err != nil {
		return new(replay.Check), fmt.Errorf("--%s: %w", adminFlag, err)
	}
	if res.Valid == (res.Against == nil) || res.Valid == (len(res.Faults) > 0) || traffic && res.Valid && res.Traffic == nil {
		return new(replay.Check), fmt.Errorf("--%s: %s/reload does not respond to a dry run: is it the admin listener of an adbuffer?", adminFlag, client.URL())
	}
	if res.Against != nil {
		res.Against.URL = client.URL()
	}
	res.Faults = res.Faults.In(path)
	return res, nil
}

// dryRunTimeout is longer than a reload takes, since a dry run waits for a reload in progress.
const dryRunTimeout = 15 * time.Second

// trafficTimeout is longer than a million sampled requests take on a busy machine.
const trafficTimeout = 5 * time.Minute

// checkHere validates text, the content of the file at path, with the variables and files of this machine.
func checkHere(path string, text []byte) (*config.Config, *reload.Check) {
	cfg, warnings, err := config.Parse(text, config.OSEnv())
	res := reload.NewCheck(cfg, warnings, err)
	res.Faults = res.Faults.In(path)
	return cfg, res
}

// print writes what the flags ask for, and the result. cfg is nil if a running adbuffer checked the
// file.
func (f *checkFlags) print(stdout *os.File, path string, cfg *config.Config, res *reload.Check) error {
	if !res.Valid {
		return res.Faults
	}
	counts := ""
	if cfg != nil {
		counts = fmt.Sprintf("SSPs: %d, routes: %d, ", len(cfg.SSPs), len(cfg.Routes))
	}
	switch {
	case f.reveal:
		fmt.Fprint(stdout, string(cfg.YAMLWithSecrets()))
	case f.effective:
		fmt.Fprint(stdout, string(cfg.YAML()))
	}
	for _, w := range res.Warnings {
		fmt.Fprintf(stdout, "# warning: %v\n", w)
	}
	fmt.Fprintf(stdout, "# %s is valid (%swarnings: %d)\n", path, counts, len(res.Warnings))
	if res.Against != nil {
		res.Against.Write(stdout, path, app.Version, f.quiet)
	}
	return nil
}

// client returns a client for the running adbuffer to compare with, or nil if there is none. It refuses flags
// that exclude each other.
func (f *checkFlags) client() (*admin.Client, error) {
	prints := f.effective || f.reveal
	if prints && (f.asJSON || f.quiet || f.against.URL != "") {
		return nil, errors.New("--effective and --show-secrets print the effective configuration, which --admin, --json and --quiet do not")
	}
	if f.against.URL == "" && !prints {
		f.against.URL = os.Getenv(adminVariable)
	}
	switch {
	case f.against.URL != "":
		return newClient(&f.against)
	case f.against != (admin.ClientOptions{}):
		return nil, errors.New("--token-file, --ca-file, --cert-file, --key-file and --insecure are for --admin")
	}
	return nil, nil
}

// errPrinted is the error of a command that has already printed what is wrong.
var errPrinted = failed(errors.New(""))

// yamlFiles completes the name of a configuration.
func yamlFiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}
