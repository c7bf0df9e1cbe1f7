// Package demo shows adbuffer at work: simulated SSPs, an adbuffer in front of them, a
// request through every route mode, and a light load.
package demo

import (
	"bytes"
	_ "embed" // the configuration
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"adbuffer/internal/app/app"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/wire/logs"
)

//go:embed demo.yaml
var demoConfig string

// Demo is a running demo.
type Demo struct {
	App  *app.App
	ssps []*sspsim.SSP
	dir  string // temporary directory with the certificate authority of the SSP that uses TLS
	out  io.Writer
	log  *logs.Sink
}

// demoSSPs are the simulated SSPs, in the order of the configuration.
var demoSSPs = []struct {
	name, about string
	options     sspsim.Options
}{
	{"alpha", "HTTP/1.1, responds in 15 ms, seldom in 60 ms", sspsim.Options{Behaviour: taking(sspsim.Lognormal(15*time.Millisecond, 60*time.Millisecond))}},
	{"beta", "HTTP/2 over TLS, responds within 30 ms", sspsim.Options{Protocol: sspsim.TLSAuto, Behaviour: taking(sspsim.Constant(30 * time.Millisecond))}},
	{"slow", "responds after two seconds, which is after the deadline", sspsim.Options{Behaviour: taking(sspsim.Constant(2 * time.Second))}},
	{"broken", "responds 503 to everything", sspsim.Options{Behaviour: sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always}}}}},
}

func taking(l sspsim.Latency) sspsim.Behaviour { return sspsim.Behaviour{Latency: l} }

// Start starts the SSPs and makes the App, which the caller runs. It prints the addresses to out, and logs to
// stderr. If anyPort is true, or the default ports are in use, the App listens on other, free ports.
func Start(anyPort bool, out io.Writer, stderr *os.File) (d *Demo, err error) {
	d = &Demo{out: out}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	d.dir, err = os.MkdirTemp("", "adbuffer-demo-")
	if err != nil {
		return d, err
	}
	for _, s := range demoSSPs {
		sim, err := sspsim.Start(s.options)
		if err != nil {
			return d, fmt.Errorf("simulated SSP %s: %w", s.name, err)
		}
		d.ssps = append(d.ssps, sim)
	}
	ca := filepath.Join(d.dir, "ca.pem")
	if err := os.WriteFile(ca, d.ssps[1].CA().PEM(), 0o600); err != nil {
		return d, err
	}
	listen, admin := "127.0.0.1:8080", "127.0.0.1:9090"
	if anyPort || !free(listen) || !free(admin) {
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
	log, level, sink, err := app.NewLogger(cfg.Log, stderr)
	if err != nil {
		return d, err
	}
	d.log = sink
	d.App, err = app.New(cfg, log, app.Process{Level: &level, Sink: sink})
	if err != nil {
		return d, err
	}
	fmt.Fprintf(out, "The admin page: http://%v/\n\nadbuffer %s listens on http://%v, with four simulated SSPs:\n%s\n",
		d.App.AdminAddr(), app.Version, d.App.TrafficAddr(), d.describe())
	return d, nil
}

// free reports whether a listener can open addr.
func free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Close closes the SSPs. The caller has ended the App.
func (d *Demo) Close() {
	for _, s := range d.ssps {
		s.Close()
	}
	os.RemoveAll(d.dir)
	if d.log != nil {
		d.log.Sync() //nolint:errcheck // it never fails
	}
}

func (d *Demo) describe() string {
	var b strings.Builder
	for i, s := range demoSSPs {
		fmt.Fprintf(&b, "  %-7s %-30s %s\n", s.name, d.ssps[i].URL(), s.about)
	}
	return b.String()
}
