package main

import (
	"bytes"
	"context"
	_ "embed" // the demo's configuration
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"adbuffer/internal/app"
	"adbuffer/internal/config"
	"adbuffer/internal/loglimit"
	"adbuffer/internal/sspsim"
)

//go:embed demo.yaml
var demoConfig string

func newDemo(stdout, stderr *os.File) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: an embedded configuration and simulated SSPs",
		Long: `Starts four simulated SSPs on loopback (one HTTP/1.1, one HTTP/2 over TLS, one slow,
one that fails) and adbuffer in front of them, sends a few requests through every
route mode, and prints what came back. Needs no file and no network. Serves on until
Ctrl-C, so that you can send requests of your own.`,
		Example: "  adbuffer demo\n  adbuffer demo --once",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return failed(runDemo(cmd.Context(), once, stdout, stderr))
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "send the requests and exit")
	return cmd
}

func runDemo(ctx context.Context, once bool, stdout, stderr *os.File) error {
	dir, err := os.MkdirTemp("", "adbuffer-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a leftover temporary folder harms nobody

	d, err := startDemo(dir, once, stderr)
	if err != nil {
		return err
	}
	defer d.close()
	fmt.Fprintf(stdout, "adbuffer %s, listening on http://%v, with four simulated SSPs:\n%s\n", app.Version, d.app.TrafficAddr(), d.describe())

	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runUntilSignal(running, d.app) }()
	if err := d.tour(running, stdout); err != nil {
		stop()
		return errors.Join(err, <-ended)
	}
	if once {
		stop()
		return <-ended
	}
	d.invite(stdout)
	return <-ended
}

// demo is the running demo.
type demo struct {
	app  *app.App
	log  *loglimit.Sink
	ssps []*sspsim.SSP
}

// demoSSPs are the simulated SSPs, in the order of the configuration.
var demoSSPs = []struct {
	name, about string
	options     sspsim.Options
}{
	{"alpha", "HTTP/1.1, answers within 20 ms", sspsim.Options{Behaviour: answering(sspsim.Constant(20 * time.Millisecond))}},
	{"beta", "HTTP/2 over TLS, answers within 30 ms", sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: answering(sspsim.Constant(30 * time.Millisecond))}},
	{"slow", "answers after two seconds, which is too late", sspsim.Options{Behaviour: answering(sspsim.Constant(2 * time.Second))}},
	{"broken", "answers 503 to everything", sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}}}},
}

func answering(l sspsim.Latency) sspsim.Behaviour { return sspsim.Behaviour{Latency: l} }

func startDemo(dir string, once bool, stderr *os.File) (d *demo, err error) {
	d = new(demo)
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	for _, s := range demoSSPs {
		sim, err := sspsim.Start(s.options)
		if err != nil {
			return d, fmt.Errorf("simulated SSP %s: %w", s.name, err)
		}
		d.ssps = append(d.ssps, sim)
	}
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, d.ssps[1].CAPEM(), 0o600); err != nil {
		return d, err
	}
	listen, admin := "127.0.0.1:8080", "127.0.0.1:9090"
	if once || !free(listen) || !free(admin) {
		listen, admin = "127.0.0.1:0", "127.0.0.1:0"
	}
	var text bytes.Buffer
	if err := template.Must(template.New("demo").Parse(demoConfig)).Execute(&text, map[string]string{
		"Listen": listen, "Admin": admin, "CA": ca,
		"Alpha": d.ssps[0].URL(), "Beta": d.ssps[1].URL(), "Slow": d.ssps[2].URL(), "Broken": d.ssps[3].URL(),
	}); err != nil {
		return d, err
	}
	cfg, _, err := config.Parse(text.Bytes(), nil)
	if err != nil {
		return d, err
	}
	log, level, sink, err := newLogger(cfg.Log, stderr)
	if err != nil {
		return d, err
	}
	d.log = sink
	d.app, err = app.New(cfg, log, app.WithLogLevel(level), app.WithLogSink(sink))
	return d, err
}

// free reports whether a listener can be had at addr.
func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func (d *demo) close() {
	for _, s := range d.ssps {
		s.Close() //nolint:errcheck // the demo is over
	}
	if d.log != nil {
		d.log.Sync() //nolint:errcheck // it never fails
	}
}

func (d *demo) describe() string {
	var b strings.Builder
	for i, s := range demoSSPs {
		fmt.Fprintf(&b, "  %-7s %-30s %s\n", s.name, d.ssps[i].URL(), s.about)
	}
	return b.String()
}

// bid is a small OpenRTB 2.6 bid request.
const bid = `{"id":"demo-1","imp":[{"id":"1","banner":{"w":300,"h":250}}],"site":{"page":"https://publisher.example/"},"tmax":300}`

// tour sends a request or two through every route, and tells what came back.
func (d *demo) tour(ctx context.Context, stdout io.Writer) error {
	base := "http://" + d.app.TrafficAddr().String()
	client := &http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	if err := d.awaitReady(ctx); err != nil {
		return err
	}
	for _, step := range []struct{ title, method, path, body string }{
		{"single: one SSP; this one speaks HTTP/1.1", "GET", "/fillbuffer?pub=1&slot=top", ""},
		{"the client chooses beta, which speaks HTTP/2; an OpenRTB bid request", "POST", "/fillbuffer/beta", bid},
		{"the client chooses slow: adbuffer gives up in time", "GET", "/fillbuffer?ssp=slow", ""},
		{"the client chooses broken: its 503 is passed on", "GET", "/fillbuffer?ssp=broken", ""},
		{"split: alpha and beta, 3 to 1", "GET", "/split?pub=1", ""},
		{"waterfall: broken, then slow (100 ms), then beta", "GET", "/waterfall?pub=1", ""},
		{"parallel-first: slow, beta and alpha at once; the first fill wins", "GET", "/parallel-first?pub=1", ""},
		{"parallel-all: every answer in one document; slow is not waited for", "GET", "/parallel-all?pub=1", ""},
		{"on_error: no_ad: an empty VAST document instead of broken's 503", "GET", "/vast?pub=1", ""},
	} {
		if err := d.show(ctx, stdout, client, base, step.title, step.method, step.path, step.body); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for !d.app.Ready() {
		select {
		case <-ctx.Done():
			return errors.New("the demo did not become ready within 10 s")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func (d *demo) show(ctx context.Context, stdout io.Writer, client *http.Client, base, title, method, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	start := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s\n  %s %s\n  %s in %d ms, answered by %s\n", title, method, path, res.Status,
		time.Since(start).Milliseconds(), res.Header.Get("X-Adbuffer-Source"))
	if text := strings.TrimSpace(string(answer)); text != "" {
		if len(text) > 300 {
			text = text[:300] + "…"
		}
		fmt.Fprintf(stdout, "  %s\n", strings.ReplaceAll(text, "\n", "\n  "))
	}
	fmt.Fprintln(stdout)
	return nil
}

// invite says what to try.
func (d *demo) invite(stdout io.Writer) {
	traffic, admin := "http://"+d.app.TrafficAddr().String(), "http://"+d.app.AdminAddr().String()
	fmt.Fprintf(stdout, `Still serving; Ctrl-C ends. Try:
  curl -i '%[1]s/fillbuffer?pub=1'                              a request
  curl -i -H 'X-Adbuffer-Timeout-Ms: 20' '%[1]s/fillbuffer/beta'  too little time
  curl -s '%[1]s/parallel-all' | head -c 400                      all SSPs at once
  curl -s '%[2]s/pools'                                           how full the pools are
  curl -s '%[2]s/metrics' | grep ^adbuffer_pool_saturation        the same for Prometheus
Next: adbuffer check --config config/adbuffer.yaml, which documents every setting.
`, traffic, admin)
}
