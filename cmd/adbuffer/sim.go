package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"adbuffer/internal/sspsim"
)

func newSim(stdout *os.File) *cobra.Command {
	var o sspsim.Options
	var protocol, behaviour string
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run one simulated SSP, to try a configuration against",
		Long: `Runs a simulated SSP until SIGTERM or Ctrl-C. It responds to every request with an
OpenRTB bid, with the latency and faults of --behaviour. The behaviour is JSON. Absent keys
mean a healthy SSP, and the error about an unknown key lists all keys. With --control, GET
and PATCH /behaviour show and change it while it runs, and GET /counters shows its counts.`,
		Example: `  adbuffer sim --listen 127.0.0.1:9000
  adbuffer sim --behaviour '{"latency":{"p50":"40ms","p99":"150ms"},"answer":{"no_bid":{"share":0.2}}}'
  adbuffer sim --protocol h2c --control 127.0.0.1:9001
  curl -X PATCH -d '{"latency":{"p50":"200ms","p99":"800ms"}}' http://127.0.0.1:9001/behaviour`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Behaviour.UnmarshalJSON([]byte(behaviour)); err != nil {
				return fmt.Errorf("--behaviour: %w", err)
			}
			o.Protocol = sspsim.Protocol(protocol)
			return failed(runSim(cmd.Context(), o, stdout))
		},
	}
	cmd.Flags().StringVar(&o.Addr, "listen", "127.0.0.1:9000", "host:port; an empty host is every interface")
	cmd.Flags().StringVar(&o.Control, "control", "", "loopback host:port of the control endpoint (default: none)")
	cmd.Flags().StringVar(&protocol, "protocol", string(sspsim.HTTP1), "http1 or h2c; or tls, tls-h2, tls-http1, with a certificate of its own making")
	cmd.Flags().StringVar(&behaviour, "behaviour", "{}", "its behaviour, in JSON")
	return cmd
}

func runSim(ctx context.Context, o sspsim.Options, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	sim, err := sspsim.Start(o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "simulated SSP, listening on %s\n", sim.URL())
	if url := sim.ControlURL(); url != "" {
		fmt.Fprintf(stdout, "control endpoint, listening on %s\n", url)
	}
	<-ctx.Done()
	return sim.Close()
}
