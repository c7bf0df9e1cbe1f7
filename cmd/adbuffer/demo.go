package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"adbuffer/internal/app/demo"
)

func newDemo(stdout, stderr *os.File) *cobra.Command {
	var once, quiet bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See adbuffer work, with an embedded configuration and simulated SSPs",
		Long: `Starts four simulated SSPs on loopback (one HTTP/1.1, one HTTP/2 over TLS, one slow,
one that fails) and adbuffer in front of them. Sends a few requests through every
route mode and prints the responses. Then a light load keeps the admin page
live until Ctrl-C. Needs no file and no network.`,
		Example: `  adbuffer demo           then open the page whose URL it prints
  adbuffer demo --quiet   with no load, for requests of your own
  adbuffer demo --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failed(runDemo(cmd.Context(), once, quiet, stdout, stderr))
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "send the requests and exit")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "send no load after the requests")
	return cmd
}

func runDemo(ctx context.Context, once, quiet bool, stdout, stderr *os.File) error {
	d, err := demo.Start(once, stdout, stderr)
	if err != nil {
		return err
	}
	defer d.Close()
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runUntilSignal(running, d.App) }()
	if err := d.Tour(running); err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	if once {
		stop()
		return <-ended
	}
	d.Invite(quiet)
	if !quiet {
		load, stopLoad := signal.NotifyContext(running, syscall.SIGTERM, syscall.SIGINT)
		defer stopLoad()
		go d.Load(load)
	}
	return <-ended
}
