package main

import (
	"context"
	"errors"
	"math"
	"os"
	"os/signal"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"adbuffer/internal/app/app"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
)

// configVariable is the environment variable that names the configuration file if the flag is absent.
const configVariable = "ADBUFFER_CONFIG"

func newServe(stderr *os.File) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Run the service",
		Long: `Runs the service until SIGTERM or SIGINT, and then drains: /readyz turns to 503 at once,
connections are accepted for server.drain.delay longer, and requests in flight have
server.drain.timeout to end. A second signal ends the drain at once. The exit status is 0
if no request was cut.

The configuration is read again on SIGHUP, on POST /reload of the admin listener, and within
two seconds after a change of the file or of a file that it names, such as certificates,
authorities and tokens. Renamed files and swapped symbolic links, as in Kubernetes, are
detected as well. Changes take effect without a lost request. A file with errors changes
nothing: the log has the errors, and the metric adbuffer_config_last_reload_successful is 0.
A change that needs a restart, such as another server.listen, is also an error, as is one that
admin.sample.max_change forbids; see adbuffer check --admin and adbuffer reload.`,
		Example: `  adbuffer serve --config config/adbuffer.yaml
  ADBUFFER_CONFIG=/etc/adbuffer.yaml ADBUFFER_SERVER_LISTEN=0.0.0.0:8080 adbuffer serve`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// This comes first, since a SIGHUP without a handler would end the process.
			hangups := make(chan os.Signal, 1)
			signal.Notify(hangups, syscall.SIGHUP)
			defer signal.Stop(hangups)

			path, err := configPath(file)
			if err != nil {
				return err
			}
			reloads := reload.NewFile(path) // before Load, so that a change during the start is detected
			cfg, warnings, err := config.Load(path, config.OSEnv())
			if err != nil {
				return failed(err)
			}
			log, level, sink, err := app.NewLogger(cfg.Log, stderr)
			if err != nil {
				return failed(err)
			}
			defer log.Sync()
			limitMemory(log)
			reload.LogWarnings(log, warnings)
			reloads.Remember(cfg) // before New reads the files that cfg names
			a, err := app.New(cfg, log, app.Process{Level: &level, Sink: sink, Reload: reloads.Post})
			if err != nil {
				return failed(err)
			}
			reloads.Start(a, cfg, log)
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			go reloads.Run(ctx, hangups)
			return failed(runUntilSignal(cmd.Context(), a))
		},
	}
	addConfigFlag(cmd, &file)
	return cmd
}

// limitMemory sets GOMEMLIMIT to nine tenths of the cgroup's memory limit, unless the environment sets it, so
// that Go collects garbage more often before the process reaches the cgroup's limit.
func limitMemory(log *zap.Logger) {
	limit, err := memlimit.Set()
	switch {
	case err != nil: // no cgroup, as on a developer's machine
		log.Debug("GOMEMLIMIT is not set", zap.Error(err))
	case limit < math.MaxInt64:
		log.Info("GOMEMLIMIT in force", zap.Int64("bytes", limit))
	}
}

func addConfigFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "config", "c", "", "configuration file (default: $"+configVariable+")")
}

func configPath(flag string) (string, error) {
	if flag == "" {
		flag = os.Getenv(configVariable)
	}
	if flag == "" {
		return "", errors.New("no configuration: name a file with --config or " + configVariable + ", or run 'adbuffer demo', which needs none")
	}
	return flag, nil
}

// runUntilSignal runs a until the first SIGTERM or SIGINT, and then drains it. A second signal makes the drain
// stop waiting.
func runUntilSignal(parent context.Context, a *app.App) error {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	hurry, cutShort := context.WithCancel(context.WithoutCancel(parent))
	defer cutShort()

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for _, act := range []func(){stop, cutShort} {
			select {
			case <-signals:
				act()
			case <-done:
				return
			}
		}
	}()
	return a.Run(ctx, hurry)
}
