package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/operate/admin"
)

const (
	// adminVariable is the environment variable that names the admin listener if the flag is absent.
	adminVariable = "ADBUFFER_ADMIN"
	adminFlag     = "admin"
)

var errConfigAndAdmin = errors.New("--config and --admin exclude each other")

// addAdminFlags adds the flags that say how a command reaches an admin listener.
func addAdminFlags(cmd *cobra.Command, at *admin.ClientOptions, help string) {
	fl := cmd.PersistentFlags()
	fl.StringVar(&at.URL, adminFlag, "", help)
	fl.StringVar(&at.TokenFile, "token-file", "", "file with the token of that listener")
	fl.StringVar(&at.CAFile, "ca-file", "", "authority of that listener's certificate, PEM (default: the system's)")
	fl.StringVar(&at.CertFile, "cert-file", "", "client certificate for that listener, PEM")
	fl.StringVar(&at.KeyFile, "key-file", "", "key of the client certificate, PEM")
	fl.BoolVar(&at.Insecure, "insecure", false, "accept any certificate of that listener; for tests only")
}

// runningHelp is the help of --admin for a command that always needs a running adbuffer.
const runningHelp = "URL of the admin listener (default: $" + adminVariable + ", or http://" + defaultAdmin + ")"

// runningClient returns a client of the running adbuffer that the flag or the variable names, or else
// of the one on this machine.
func runningClient(at *admin.ClientOptions) (*admin.Client, error) {
	at.URL = cmp.Or(at.URL, os.Getenv(adminVariable), "http://"+defaultAdmin)
	return newClient(at)
}

// newClient is admin.NewClient, with an error that names the flag.
func newClient(at *admin.ClientOptions) (*admin.Client, error) {
	client, err := admin.NewClient(*at)
	if errors.Is(err, admin.ErrURL) {
		return nil, fmt.Errorf("--%s %w", adminFlag, err)
	}
	return client, failed(err)
}

// ask sends a request to the admin listener, and decodes the response into v. Both must end within timeout.
// Responses with a status of also are decoded like those with 200.
func ask(ctx context.Context, client *admin.Client, timeout time.Duration, method, path string, content []byte, v any, also ...int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := client.Send(ctx, method, path, content)
	if e, ok := errors.AsType[*admin.StatusError](err); ok && slices.Contains(also, e.Status) {
		body, err = []byte(e.Body), nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s%s does not respond as an adbuffer does: is it the admin listener of an adbuffer? %w", client.URL(), path, err)
	}
	return nil
}
