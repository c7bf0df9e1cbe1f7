package reports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// PeersOptions of a comparison.
type PeersOptions struct {
	Only    []string // programs; empty is all
	Require []string // programs without which there is no comparison
	Conns   int      // at saturation and at the fixed rate
	Rate    float64  // requests a second, where all must keep up
	Rounds  int      // of which the median counts
	Idle    int      // clients
}

// figures are one row's.
type figures struct {
	peerRow
	saturated []sample
	fixed     []sample
	rssBusy   int64
	rssIdle   int64 // with the idle clients
	rssBefore int64 // before them
	doubts    []string
	unsure    bool   // doubts about saturation, on which the verdicts rest
	void      string // why there are no figures
}

type sample struct {
	cpuPerRequest  float64
	rate           float64
	p50, p99, p999 float64
}

// Peers compares the programs.
func Peers(ctx context.Context, e *engine.Env, o PeersOptions) (*results.Report, error) {
	r := e.Report("peers", "adbuffer beside other proxies",
		"How much does one core carry, and what does a request cost, in adbuffer and in what one might use instead?")
	if !e.Has(r, "wrk") {
		return nil, fmt.Errorf("wrk: %w: a Go generator could not load these proxies to the full", rig.ErrMissing)
	}
	u, err := upstream(ctx, e, r)
	if err != nil {
		return nil, err
	}
	var rows []*figures
	for _, p := range all {
		if !wanted(p.name, o.Only) {
			continue
		}
		started, err := p.start(ctx, e, u)
		if err != nil {
			if missing(err) && !wantedAtAll(p.name, o.Require) {
				r.Missing = append(r.Missing, err.Error())
				continue
			}
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		noteVersion(r, p.name)
		for _, row := range started {
			rows = append(rows, &figures{peerRow: row})
		}
	}
	for _, f := range rows {
		if err := forwards(ctx, f.Addr, u.Body); err != nil {
			f.void = "does not return the upstream's answer: " + err.Error()
		}
	}
	if err := measure(ctx, e, o, rows); err != nil {
		return nil, err
	}
	tabulate(r, o, rows)
	return e.Done(r), nil
}

func wantedAtAll(name string, required []string) bool {
	for _, n := range required {
		if n == name {
			return true
		}
	}
	return false
}

func noteVersion(r *results.Report, name string) {
	switch name {
	case "nginx", "haproxy", "caddy":
		r.Versions[name] = results.Version(name, name)
	case "envoy":
		if path, err := envoyPath(); err == nil {
			r.Versions[name] = results.Version(name, path)
		}
	case "fastify":
		r.Versions[name] = "fastify on " + results.Version("node", "node")
	case "reverseproxy":
		r.Versions["go"] = results.Version("go", "go")
	}
}

func upstream(ctx context.Context, e *engine.Env, r *results.Report) (*peersUpstream, error) {
	body := load.ConstantBody(1000)
	c, err := e.Rig.StartConstant(len(body), e.LoadCores)
	if err != nil {
		return nil, err
	}
	u := &peersUpstream{HTTP: "http://" + c.Addr, Body: body}
	if err := tlsUpstreams(ctx, e, u); err != nil {
		if !errors.Is(err, rig.ErrMissing) {
			return nil, err
		}
		r.Missing = append(r.Missing, "nginx as an upstream with TLS: no rows over TLS")
	}
	return u, nil
}

// adRequest is the request that all rows carry.
func adRequest() load.Template {
	r := engine.Presets()["ad"]
	return r.Template()
}

// forwards says whether the proxy at addr gives exactly the upstream's answer.
func forwards(ctx context.Context, addr string, want []byte) error {
	t := adRequest()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+addr+load.Fill(t.Path, 1), nil)
	if err != nil {
		return err
	}
	for _, f := range t.Headers {
		req.Header.Set(f.Name, f.Value)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != 200:
		return fmt.Errorf("status %d: %.100q", resp.StatusCode, body)
	case !bytes.Equal(body, want):
		return fmt.Errorf("a body of %d bytes, not the upstream's %d", len(body), len(want))
	case resp.Header.Get("Content-Type") != "application/json":
		return fmt.Errorf("Content-Type %q, not the upstream's", resp.Header.Get("Content-Type"))
	}
	return nil
}

// measure goes round the rows, so that each meets the machine in all its moods.
func measure(ctx context.Context, e *engine.Env, o PeersOptions, rows []*figures) error {
	for round := range o.Rounds {
		for _, f := range rows {
			if f.void != "" {
				continue
			}
			e.Say("round %d of %d: %s", round+1, o.Rounds, f.Name)
			if err := f.saturate(ctx, e, o); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			if err := f.atRate(ctx, e, o); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
	}
	for _, f := range rows {
		// A program's rows share its memory: once is enough.
		if f.void == "" && f.Protocol == "h1" && o.Idle > 0 {
			e.Say("%d idle clients: %s", o.Idle, f.Name)
			if err := f.idle(ctx, e, o); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
	}
	return nil
}

// minShare of its core makes a proxy saturated.
const minShare = 0.85

func (f *figures) saturate(ctx context.Context, e *engine.Env, o PeersOptions) error {
	before, err := f.usage()
	if err != nil {
		return err
	}
	l, err := rig.WRK(ctx, e.Rig.Dir, "http://"+f.Addr, adRequest(), o.Conns, e.Time(10*time.Second, 2*time.Second), e.LoadCores)
	if err != nil {
		return err
	}
	after, err := f.usage()
	if err != nil {
		return err
	}
	if d := l.Doubts(); d != nil {
		f.void = "at saturation, " + d[0]
		return nil
	}
	// A proxy that had less than its core was kept from it: by others' work, or by
	// a load that could not fill it.
	if share := (after.CPU() - before.CPU()).Seconds() / l.Seconds; share < minShare {
		f.unsure = true
		f.doubts = append(f.doubts, fmt.Sprintf("at saturation it used only %.0f %% of its core", share*100))
	}
	f.rssBusy = max(f.rssBusy, after.RSS)
	f.saturated = append(f.saturated, sample{cpuPerRequest: (after.CPU() - before.CPU()).Seconds() * 1e6 / float64(l.Requests), rate: l.Rate, p50: l.P50, p99: l.P99, p999: l.P999})
	return nil
}

func (f *figures) atRate(ctx context.Context, e *engine.Env, o PeersOptions) error {
	if o.Rate <= 0 || f.void != "" {
		return nil
	}
	plan := engine.OpenLoop(f.Addr, o.Conns, o.Rate, 500*time.Millisecond, e.Time(10*time.Second, 2*time.Second), adRequest())
	m, err := e.GenerateCalmly(ctx, plan, f.Process.PID)
	if err != nil {
		return err
	}
	if m.Whole.Failed > 0 {
		f.void = fmt.Sprintf("at %s requests/s, %d of %d failed: %v", results.Number(o.Rate), m.Whole.Failed, m.Whole.Offered, m.Whole.Errors)
		return nil
	}
	for _, d := range m.Doubts {
		f.doubts = append(f.doubts, fmt.Sprintf("at %s requests/s, %s", results.Number(o.Rate), d))
	}
	l := m.Whole.Latency
	f.fixed = append(f.fixed, sample{cpuPerRequest: m.PerRequest(), rate: m.Whole.Rate, p50: l.P50, p99: l.P99, p999: l.P999})
	return nil
}

func (f *figures) idle(ctx context.Context, e *engine.Env, o PeersOptions) error {
	before, err := f.usage()
	if err != nil {
		return err
	}
	held, err := e.Rig.Hold(ctx, f.Addr, o.Idle, load.NewSet(f.Addr, []load.Template{adRequest()}, false, 1).Next().Append(nil, 1), e.LoadCores)
	if hold := (*rig.HoldError)(nil); errors.As(err, &hold) {
		f.doubts = append(f.doubts, hold.Error())
		return nil
	}
	if err != nil {
		return err
	}
	defer held.Release()
	// What is freed lazily, after the requests that each client has sent.
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Second):
	}
	after, err := f.usage()
	if err != nil {
		return err
	}
	f.rssBefore, f.rssIdle = before.RSS, after.RSS
	return nil
}

// median returns the sample in the middle by CPU time.
func median(s []sample) sample {
	if len(s) == 0 {
		return sample{}
	}
	sorted := append([]sample(nil), s...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].cpuPerRequest < sorted[j].cpuPerRequest })
	return sorted[len(sorted)/2]
}
