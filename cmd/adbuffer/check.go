package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"adbuffer/internal/config"
)

// checkResult is what check --json prints.
type checkResult struct {
	Valid    bool             `json:"valid"`
	Hash     string           `json:"hash,omitempty"` // of the effective configuration, as in the metric config_info
	Faults   config.Faults    `json:"faults"`
	Warnings []config.Warning `json:"warnings"`
}

func newCheck(stdout *os.File) *cobra.Command {
	var (
		file   string
		asJSON bool
		quiet  bool
	)
	cmd := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Validate a configuration and print what it comes to",
		Long: `Validates a configuration and prints the effective one: defaults filled in,
ssp_defaults merged, variables applied, secrets hidden. All faults are reported at
once, each with its path. The exit status is 0 if there are none, 1 if there are.`,
		Example: `  adbuffer check --config config/adbuffer.yaml
  adbuffer check --config config/adbuffer.yaml --quiet
  adbuffer check --config config/adbuffer.yaml --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			path, err := configPath(file)
			if err != nil {
				return err
			}
			cfg, warnings, err := config.Load(path, os.LookupEnv)
			if asJSON {
				return printCheckJSON(stdout, cfg, warnings, err)
			}
			if err != nil {
				return failed(err)
			}
			if !quiet {
				fmt.Fprint(stdout, string(cfg.YAML()))
			}
			for _, w := range warnings {
				fmt.Fprintf(stdout, "# warning: %v\n", w)
			}
			fmt.Fprintf(stdout, "# %s is valid: %d SSPs, %d routes, %d warnings\n", path, len(cfg.SSPs), len(cfg.Routes), len(warnings))
			return nil
		},
	}
	addConfigFlag(cmd, &file)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print faults and warnings as JSON")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print warnings and the verdict only")
	return cmd
}

func printCheckJSON(stdout *os.File, cfg *config.Config, warnings []config.Warning, err error) error {
	res := checkResult{Valid: err == nil, Faults: config.Faults{}, Warnings: warnings}
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
		return failed(errors.New(""))
	}
	return nil
}
