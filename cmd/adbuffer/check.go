package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"adbuffer/internal/admin"
	"adbuffer/internal/app"
	"adbuffer/internal/config"
	"adbuffer/internal/reload"
)

// checkResult is what check --json prints.
type checkResult struct {
	Valid    bool               `json:"valid"`
	Hash     string             `json:"hash,omitempty"` // of the effective configuration, as in the metric config_info
	Faults   config.Errors      `json:"faults"`
	Warnings []config.Warning   `json:"warnings"`
	Against  *reload.Difference `json:"against,omitempty"` // what a reload would change; with --against
}

func newCheck(stdout *os.File) *cobra.Command {
	var (
		file   string
		at     admin.ClientOptions
		asJSON bool
		quiet  bool
		reveal bool
	)
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Validate a configuration, and print what it comes to or would change",
		Long: `Validates a configuration and prints the effective one: defaults filled in,
ssp_defaults merged, variables applied. Reports all errors at once, each with its path.
The exit status is 0 for a valid configuration, 1 otherwise.

Possible secrets are printed as (hidden): every value in the query of an endpoint, the
values of headers.set except for a few harmless fields, and the values of routes'
conditions with names such as token or key. --show-secrets prints them.

With --against it asks a running adbuffer for the configuration in force and prints
what the file, with the variables of this shell, would change, and how a reload would
do it:

  in place                      from the next request on; pools, sockets, counters stay
  new connections               in place, and open connections are replaced soon
  new pool, the old one drains  the SSP's endpoint, protocol or TLS is another
  added, with a pool of its own / removed, its pool drains
  needs a restart               a reload would be refused, and change nothing

The exit status is 0 if a reload would apply the file or there is no difference, 1 if
there are errors, a restart is needed, or the running adbuffer does not respond. Files
that the configuration names are compared by name, not by content.`,
		Example: `  adbuffer check --config config/adbuffer.yaml
  adbuffer check --config config/adbuffer.yaml --quiet
  adbuffer check --config config/adbuffer.yaml --json
  adbuffer check --config new.yaml --against http://127.0.0.1:9090
  adbuffer check --config new.yaml --against http://10.0.0.5:9090 --token-file token
  adbuffer check --config new.yaml --against http://127.0.0.1:9090 --json | jq .against.changes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := configPath(file)
			if err != nil {
				return err
			}
			if reveal && (asJSON || quiet || at.URL != "") {
				return errors.New("--show-secrets is for the effective configuration, which --against, --json and --quiet do not print")
			}
			var client *admin.Client
			if at.URL != "" {
				if client, err = admin.NewClient(at); errors.Is(err, admin.ErrURL) {
					return fmt.Errorf("--against %w", err)
				} else if err != nil {
					return failed(err)
				}
			} else if at != (admin.ClientOptions{}) {
				return errors.New("--token-file, --ca-file, --cert-file, --key-file and --insecure are for --against")
			}
			cfg, warnings, err := config.Load(path, os.LookupEnv)
			var compared *reload.Difference
			if err == nil && client != nil {
				if compared, err = reload.Against(cmd.Context(), client, cfg); err != nil {
					return failed(fmt.Errorf("--against: %w", err))
				}
			}
			if asJSON {
				return printCheckJSON(stdout, cfg, warnings, compared, err)
			}
			if err != nil {
				return failed(err)
			}
			if !quiet && compared == nil {
				effective := cfg.YAML()
				if reveal {
					effective = cfg.YAMLWithSecrets()
				}
				fmt.Fprint(stdout, string(effective))
			}
			for _, w := range warnings {
				fmt.Fprintf(stdout, "# warning: %v\n", w)
			}
			fmt.Fprintf(stdout, "# %s is valid: %d SSPs, %d routes, %d warnings\n", path, len(cfg.SSPs), len(cfg.Routes), len(warnings))
			if compared != nil {
				compared.Write(stdout, path, app.Version, quiet)
			}
			return refused(compared)
		},
	}
	addConfigFlag(cmd, &file)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print errors, warnings and changes as JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print warnings and the verdict only")
	cmd.Flags().BoolVar(&reveal, "show-secrets", false, "print possible secrets too, but no content of files")
	cmd.Flags().StringVar(&at.URL, "against", "", "compare with a running adbuffer: URL of its admin listener")
	cmd.Flags().StringVar(&at.TokenFile, "token-file", "", "file with the token of that listener")
	cmd.Flags().StringVar(&at.CAFile, "ca-file", "", "authority of that listener's certificate, PEM (default: the system's)")
	cmd.Flags().StringVar(&at.CertFile, "cert-file", "", "client certificate for that listener, PEM")
	cmd.Flags().StringVar(&at.KeyFile, "key-file", "", "key of the client certificate, PEM")
	cmd.Flags().BoolVar(&at.Insecure, "insecure", false, "do not check that listener's certificate")
	return cmd
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
	b, jerr := json.MarshalIndent(res, "", "  ")
	if jerr != nil {
		return failed(jerr)
	}
	fmt.Fprintln(stdout, string(b))
	if err != nil {
		return errSaid
	}
	return refused(compared)
}

// errSaid fails a command that has printed why.
var errSaid = failed(errors.New(""))

// refused fails the command where a reload would be refused. d may be nil.
func refused(d *reload.Difference) error {
	if d != nil && d.Verdict == reload.NeedsRestart {
		return errSaid
	}
	return nil
}
