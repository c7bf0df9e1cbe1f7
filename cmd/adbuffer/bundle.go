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

	"adbuffer/internal/admin"
)

// bundled are the parts of a bundle, by the names of their files.
var bundled = []struct{ file, path string }{
	{"config.yaml", "/config"}, // secrets are hidden
	{"pools.json", "/pools"},
	{"ssps.json", "/ssps"},
	{"history.json", "/history"},
	{"failures.json", "/failures"},
	{"metrics.txt", "/metrics"},
	{"goroutines.txt", "/debug/pprof/goroutine?debug=2"},
	{"heap.pprof", "/debug/pprof/heap"},
	{"mutex.pprof", "/debug/pprof/mutex"},
	{"cpu.pprof", "/debug/pprof/profile?seconds=%d"},
}

func newBundle(stdout *os.File) *cobra.Command {
	var (
		at      admin.ClientOptions
		out     string
		seconds int
		capture []string
	)
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what a ticket needs from a running adbuffer into one file",
		Long: `Writes a ZIP file with the configuration in force, pools, the last failures, metrics,
profiles and an execution trace of a running adbuffer, to attach to a ticket. Secrets of
the configuration are hidden, as everywhere. With --capture it has the next exchanges
with an SSP too, as HAR; those hold bodies and query values of requests.

With admin.flight_recorder the trace has the seconds before the command, otherwise the
second behind it.

What cannot be collected is printed and named in errors.txt; the exit status is 1 if nothing can.`,
		Example: `  adbuffer bundle
  adbuffer bundle --admin http://10.0.0.7:9090 --token-file token --capture openx --out ticket-42.zip`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if seconds < 1 || seconds > 60 {
				return errors.New("--seconds must be from 1 to 60")
			}
			client, err := admin.NewClient(at)
			if err != nil {
				return err
			}
			if out == "" {
				out = "adbuffer-" + time.Now().UTC().Format("20060102-150405") + ".zip"
			}
			n, problems, err := writeBundle(cmd.Context(), client, out, seconds, capture)
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
	fl.StringArrayVar(&capture, "capture", nil, "SSP whose next exchanges are captured, for 5 s at most; needs admin.capture")
	addAdminFlags(cmd, &at, "admin", "http://"+defaultAdmin, "URL of the admin listener")
	return cmd
}

// writeBundle writes the file, and returns how many parts it has, and why others are missing. Without
// any part there is no file.
func writeBundle(ctx context.Context, client *admin.Client, out string, seconds int, capture []string) (n int, missing, err error) {
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, nil, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			os.Remove(out) //nolint:errcheck // the error before says more
		}
	}()
	z := zip.NewWriter(f)
	var problems []error
	add := func(file, path string) {
		body, err := client.Get(ctx, path)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", file, err))
			return
		}
		if err = writePart(z, file, body); err != nil {
			problems = append(problems, err)
			return
		}
		n++
	}
	add("trace.out", "/debug/trace") // first: a flight recorder has the seconds before now
	for _, ssp := range capture {
		add("capture-"+ssp+".har", "/capture?format=har&n=20&wait=5s&ssp="+url.QueryEscape(ssp))
	}
	for _, part := range bundled {
		path := part.path
		if part.file == "cpu.pprof" {
			path = fmt.Sprintf(path, seconds)
		}
		add(part.file, path)
	}
	missing = errors.Join(problems...)
	if n == 0 {
		return 0, nil, missing
	}
	if missing != nil {
		err = writePart(z, "errors.txt", []byte(missing.Error()+"\n"))
	}
	return n, missing, errors.Join(err, z.Close())
}

func writePart(z *zip.Writer, file string, body []byte) error {
	w, err := z.CreateHeader(&zip.FileHeader{Name: file, Method: zip.Deflate, Modified: time.Now()})
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}
