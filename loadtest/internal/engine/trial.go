package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"text/template"
	"time"

	"adbuffer/internal/httpsyntax"
	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/rig"
)

// Options are what is not the scenario's to say.
type Options struct {
	// Adbuffer is its executable; "" builds it.
	Adbuffer string
	// AllowRemote loads servers that are not on this machine.
	AllowRemote bool
	Progress    func(load.Progress) // may be nil
	Say         func(format string, args ...any)
}

// Outcome is what a scenario came to.
type Outcome struct {
	Scenario string                     `json:"scenario"`
	Load     *load.Result               `json:"load"`
	Proxy    *Usage                     `json:"proxy,omitempty"` // of the process under test, if there is one
	SSPs     map[string]sspsim.Counters `json:"ssps,omitempty"`
}

// Usage is what the process under test cost, warm-up included.
type Usage struct {
	PID           int     `json:"pid"`
	CPUSeconds    float64 `json:"cpu_seconds"`
	CPUPerRequest float64 `json:"cpu_us_per_request"`
	RSS           int64   `json:"rss_bytes"`
	PeakRSS       int64   `json:"peak_rss_bytes"`
	Files         int     `json:"open_files"`
}

// errRemote says that a target is not on this machine.
var errRemote = errors.New("is not on this machine; load on others' servers is an attack, so it must be asked for with --allow-remote")

// Run carries s out. The outcome holds what there is also where the error is not
// nil, if it is not nil itself.
func Run(ctx context.Context, s *Scenario, o Options) (*Outcome, error) {
	r, err := rig.New()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	t := &trial{rig: r, scenario: s, options: o, ssps: map[string]*rig.SSP{}}
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.load(ctx)
}

type trial struct {
	rig      *rig.Rig
	scenario *Scenario
	options  Options
	ssps     map[string]*rig.SSP
	target   *url.URL
	tls      *tls.Config
	pid      int // of the process under test; 0 is none
}

func (t *trial) start(ctx context.Context) error {
	for _, s := range t.scenario.SSPs {
		ssp, err := t.rig.StartSSP(rig.SSPOptions{Name: s.Name, Protocol: sspsim.Protocol(s.Protocol), Behaviour: s.Parsed, Seed: s.Seed, Cores: s.Cores})
		if err != nil {
			return err
		}
		t.ssps[s.Name] = ssp
	}
	target := t.scenario.Target
	address, caFile := target.URL, target.CAFile
	t.pid = target.PID
	switch {
	case target.SSP != "":
		s := t.ssps[target.SSP]
		address, caFile, t.pid = s.URL, s.CAFile, s.PID
	case t.scenario.Adbuffer.Config != "":
		a, err := t.startAdbuffer(ctx)
		if err != nil {
			return err
		}
		address, t.pid = "http://"+a.Addr, a.PID
	}
	var err error
	if t.target, err = url.Parse(address); err != nil {
		return err
	}
	if !t.options.AllowRemote && !httpsyntax.IsLoopbackHost(t.target.Hostname()) {
		return fmt.Errorf("target.url: %s %w", t.target.Hostname(), errRemote)
	}
	if t.target.Scheme == "https" {
		t.tls, err = t.tlsConfig(caFile)
	}
	return err
}

func (t *trial) startAdbuffer(ctx context.Context) (*rig.Adbuffer, error) {
	bin := t.options.Adbuffer
	if bin == "" {
		t.options.Say("building adbuffer")
		var err error
		if bin, err = t.rig.Build(ctx); err != nil {
			return nil, err
		}
	}
	find := func(get func(*rig.SSP) string) func(string) (string, error) {
		return func(name string) (string, error) {
			s := t.ssps[name]
			if s == nil {
				return "", fmt.Errorf("adbuffer.config: no SSP %q", name)
			}
			return get(s), nil
		}
	}
	tmpl, err := configTemplate(t.scenario.Adbuffer.Config)
	if err != nil {
		return nil, err
	}
	tmpl.Funcs(template.FuncMap{"url": find(func(s *rig.SSP) string { return s.URL }), "ca": find(func(s *rig.SSP) string { return s.CAFile })})
	var config bytes.Buffer
	if err := tmpl.Execute(&config, nil); err != nil {
		return nil, err
	}
	return t.rig.StartAdbuffer(ctx, bin, config.String(), t.scenario.Adbuffer.Cores)
}

func (t *trial) tlsConfig(caFile string) (*tls.Config, error) {
	c := &tls.Config{ServerName: t.target.Hostname(), InsecureSkipVerify: t.scenario.Target.Insecure, NextProtos: []string{"http/1.1"}}
	if t.scenario.Load.Protocol == string(load.HTTP2) {
		c.NextProtos = []string{"h2"}
	}
	if caFile == "" {
		return c, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("target.ca_file: %s holds no certificate", caFile)
	}
	return c, nil
}

func (t *trial) load(ctx context.Context) (*Outcome, error) {
	plan := t.scenario.Plan()
	plan.Host, plan.TLS = t.target.Host, t.tls
	plan.Addr = t.target.Host
	if t.target.Port() == "" {
		port := map[string]string{"http": "80", "https": "443"}[t.target.Scheme]
		plan.Addr = net.JoinHostPort(t.target.Hostname(), port)
	}
	var before load.Usage
	if t.pid != 0 {
		var err error
		if before, err = load.ReadTree(t.pid); err != nil {
			return nil, fmt.Errorf("target.pid: %w", err)
		}
	}
	stop := t.changes(ctx)
	result, err := load.Run(ctx, plan, t.options.Progress)
	if changed := stop(); err == nil {
		err = changed
	}
	if result == nil {
		return nil, err
	}
	out := &Outcome{Scenario: t.scenario.Name, Load: result}
	if t.pid != 0 {
		// A process that has ended meanwhile shows in the errors.
		if after, readErr := load.ReadTree(t.pid); readErr == nil {
			out.Proxy = usage(t.pid, before, after, result)
		}
	}
	if len(t.ssps) > 0 {
		out.SSPs = map[string]sspsim.Counters{}
	}
	for name, s := range t.ssps {
		c, countErr := s.Counters()
		if countErr != nil && err == nil {
			err = countErr
		}
		out.SSPs[name] = c
	}
	return out, err
}

func usage(pid int, before, after load.Usage, r *load.Result) *Usage {
	var answered uint64
	for _, p := range r.Phases {
		answered += p.Answered
	}
	cpu := after.CPU() - before.CPU()
	return &Usage{PID: pid, CPUSeconds: cpu.Seconds(), CPUPerRequest: cpu.Seconds() * 1e6 / float64(max(answered, 1)),
		RSS: after.RSS, PeakRSS: after.PeakRSS, Files: after.Files}
}

// changes puts behaviours in force at their times. The returned function ends
// that and returns the first error.
func (t *trial) changes(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var first error
	var running sync.WaitGroup
	for _, c := range t.scenario.Changes {
		running.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(c.At):
			}
			if err := t.ssps[c.SSP].Patch(c.JSON); err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = errors.Join(first, err)
			}
		})
	}
	return func() error {
		cancel()
		running.Wait()
		return first
	}
}
