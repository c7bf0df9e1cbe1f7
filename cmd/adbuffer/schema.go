package main

import (
	"os"

	"github.com/spf13/cobra"

	"adbuffer/config"
)

func newSchema(stdout *os.File) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: `Prints the JSON Schema of the configuration. An editor with the YAML language server
completes and checks keys with it, if the first line of the configuration names the file.`,
		Example: `  adbuffer schema >adbuffer.schema.json
  echo '# yaml-language-server: $schema=adbuffer.schema.json'   # the first line of adbuffer.yaml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := stdout.Write(config.Schema)
			return failed(err)
		},
	}
}
