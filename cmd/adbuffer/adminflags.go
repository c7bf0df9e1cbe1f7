package main

import (
	"github.com/spf13/cobra"

	"adbuffer/internal/admin"
)

// addAdminFlags adds the flags that say how a command reaches an admin listener.
func addAdminFlags(cmd *cobra.Command, at *admin.ClientOptions, name, url, help string) {
	fl := cmd.PersistentFlags()
	fl.StringVar(&at.URL, name, url, help)
	fl.StringVar(&at.TokenFile, "token-file", "", "file with the token of that listener")
	fl.StringVar(&at.CAFile, "ca-file", "", "authority of that listener's certificate, PEM (default: the system's)")
	fl.StringVar(&at.CertFile, "cert-file", "", "client certificate for that listener, PEM")
	fl.StringVar(&at.KeyFile, "key-file", "", "key of the client certificate, PEM")
	fl.BoolVar(&at.Insecure, "insecure", false, "accept any certificate of that listener; for tests only")
}
