package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/operate/admin"
)

// part is a file of a bundle.
type part struct {
	file, path string
	takes      time.Duration // how long the listener takes to collect the part
}

// bundled holds the parts of every bundle in addition to the CPU profile and the trace.
var bundled = []part{
	{"config.yaml", "/config", 0}, // secrets are hidden
	{"pools.json", "/pools", 0},
	{"ssps.json", "/ssps", 0},
	{"history.json", "/history", 0},
	{"failures.json", "/failures", 0},
	{"metrics.txt", "/metrics", 0},
	{"goroutines.txt", "/debug/pprof/goroutine?debug=2", 0},
	{"heap.pprof", "/debug/pprof/heap", 0},
}

func newBundle(stdout *os.File) *cobra.Command {
	var (
		at      admin.ClientOptions
		out     string
		seconds int
		timeout time.Duration
		capture []string
	)
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect the facts for a ticket from a running adbuffer into one file",
		Long: `Writes a ZIP file with the configuration in force, pools, the last failures, metrics,
profiles and an execution trace of a running adbuffer, to attach to a ticket. Secrets of
the configuration are hidden. With --capture the file also has the next exchanges
with an SSP; they hold bodies and query values of requests.

Parts that cannot be collected are printed, and named in errors.txt. The exit status is 0 if at
least one part was collected. Otherwise it is 1, the first error is printed, and no file is
written.`,
		Example: `  adbuffer bundle
  adbuffer bundle --admin http://10.0.0.7:9090 --token-file token --capture openx --out ticket-42.zip`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 1 || seconds > 60 {
				return errors.New("--seconds must be from 1 to 60")
			}
			if timeout <= 0 {
				return fmt.Errorf("--timeout %v is not above 0", timeout)
			}
			client, err := runningClient(&at)
			if err != nil {
				return err
			}
			if out == "" {
				out = "adbuffer-" + time.Now().UTC().Format("20060102-150405") + ".zip"
			}
			parts := partsOf(time.Duration(seconds)*time.Second, capture)
			n, problems, err := writeBundle(cmd.Context(), client, out, timeout, parts)
			if err != nil {
				return failed(err)
			}
			if problems != nil {
				cmd.PrintErrln(problems)
			}
			_, err = fmt.Fprintf(stdout, "%s: %d parts\n", out, n)
			return failed(err)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&out, "out", "", "file to write (default: adbuffer-<time>.zip)")
	fl.IntVar(&seconds, "seconds", 5, "length of the CPU profile")
	fl.DurationVar(&timeout, "timeout", 15*time.Second, "timeout of each part, in addition to the length of its capture, profile or trace")
	fl.StringArrayVar(&capture, "capture", nil, "SSP whose next exchanges are captured, for 5 s at most; needs admin.capture")
	addAdminFlags(cmd, &at, runningHelp)
	return cmd
}

// partsOf returns the parts of a bundle with a CPU profile of this length.
func partsOf(profile time.Duration, capture []string) []part {
	all := []part{{"trace.out", "/debug/pprof/trace?seconds=1", time.Second}}
	for _, ssp := range capture {
		all = append(all, part{"capture-" + ssp + ".json", "/capture?n=20&wait=5s&ssp=" + url.QueryEscape(ssp), 5 * time.Second})
	}
	all = append(all, bundled...)
	return append(all, part{"cpu.pprof", fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", profile.Seconds()), profile})
}

// writeBundle writes the file. It returns how many parts the file has, and why others are missing. If no part
// can be collected, it writes no file.
func writeBundle(ctx context.Context, client *admin.Client, out string, timeout time.Duration, parts []part) (n int, missing, err error) {
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			os.Remove(out)
		}
	}()
	z := zip.NewWriter(f)
	var problems []error
	for _, p := range parts {
		body, err := collect(ctx, client, p, timeout)
		if err == nil {
			err = writePart(z, p.file, body)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.file, err))
			continue
		}
		n++
	}
	if n == 0 {
		return 0, nil, fmt.Errorf("no part could be collected; %w", problems[0])
	}
	missing = errors.Join(problems...)
	if missing != nil {
		err = writePart(z, "errors.txt", []byte(missing.Error()+"\n"))
	}
	return n, missing, errors.Join(err, z.Close())
}

// collect returns the content of one part.
func collect(ctx context.Context, client *admin.Client, p part, timeout time.Duration) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, p.takes+timeout)
	defer cancel()
	body, err := client.Get(limited, p.path)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no response from %s%s within %v; see --timeout", client.URL(), p.path, p.takes+timeout)
	}
	return body, err
}

func writePart(z *zip.Writer, file string, body []byte) error {
	w, err := z.CreateHeader(&zip.FileHeader{Name: file, Method: zip.Deflate, Modified: time.Now()})
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}
