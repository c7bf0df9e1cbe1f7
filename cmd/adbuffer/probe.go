package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/machine/configfile"
	"adbuffer/internal/operate/probe"
)

// maxProbeBody bounds the file of --body.
const maxProbeBody = 1 << 20

// Limits on --conns and --requests, so that a typing error does not become an attack.
const (
	maxProbeConns    = 64
	maxProbeRequests = 10_000
)

func newProbe(stdout *os.File) *cobra.Command {
	var o probe.Options
	var body, ca string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "probe URL",
		Short: "Ask an SSP what its configuration should be, and print the YAML",
		Long: `Asks one SSP what an operator must know before it gets requests: protocols by ALPN, TLS
versions, addresses, handshake and response times, requests per connection before it closes,
HTTP/2 streams, gzip, zstd, and what a no-bid looks like. Then it prints the YAML for the SSP.

These are real requests, which the SSP may count: GET, or with --body a POST of the file as
application/json. probe opens at most --conns connections at once, and sends at most
--requests requests. With --idle it leaves a connection of each protocol idle for that
time, to see when the SSP closes it.`,
		Example: `  adbuffer probe https://rtb.openx.example/bid
  adbuffer probe https://rtb.openx.example/bid --body bid-request.json --idle 120s
  adbuffer probe http://127.0.0.1:9000/ --pipelining --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.Conns < 1 || o.Conns > maxProbeConns:
				return fmt.Errorf("--conns must be from 1 to %d", maxProbeConns)
			case o.Requests < 1 || o.Requests > maxProbeRequests:
				return fmt.Errorf("--requests must be from 1 to %d", maxProbeRequests)
			case o.Timeout <= 0 || o.Idle < 0:
				return errors.New("--timeout must be above 0, and --idle must not be negative")
			}
			o.URL = args[0]
			if err := readProbeFiles(&o, body, ca); err != nil {
				return failed(err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			err := runProbe(ctx, o, stdout, asJSON)
			if errors.Is(err, probe.ErrURL) {
				return err
			}
			return failed(err)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&body, "body", "", "file with the body of a POST, such as an OpenRTB request")
	fl.DurationVar(&o.Idle, "idle", 0, "how long to wait until the SSP closes an idle connection, such as 120s")
	fl.BoolVar(&o.Pipelining, "pipelining", false, "send several requests at once on a connection of HTTP/1.1")
	fl.IntVar(&o.Conns, "conns", 4, "connections open at once, at most")
	fl.IntVar(&o.Requests, "requests", 50, "requests in all, at most")
	fl.DurationVar(&o.Timeout, "timeout", 5*time.Second, "timeout of a dial, of a TLS handshake, and of a request")
	fl.StringVar(&ca, "ca-file", "", "authority of the SSP's certificate, PEM (default: the system's)")
	fl.BoolVar(&o.Insecure, "insecure", false, "accept any certificate of the SSP; for tests only")
	fl.BoolVar(&asJSON, "json", false, "print JSON instead")
	return cmd
}

func readProbeFiles(o *probe.Options, body, ca string) error {
	m, err := configfile.TLSFiles{CA: ca}.Load()
	if err != nil {
		return fmt.Errorf("--ca-file %w", err)
	}
	o.Authorities = m.Authorities
	if body != "" {
		o.Body, err = configfile.Read(body, maxProbeBody)
		if err != nil {
			return fmt.Errorf("--body %w", err)
		}
	}
	return nil
}

func runProbe(ctx context.Context, o probe.Options, stdout *os.File, asJSON bool) error {
	report, err := probe.Run(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(stdout, report)
	}
	report.Write(stdout, o.Idle)
	return nil
}
