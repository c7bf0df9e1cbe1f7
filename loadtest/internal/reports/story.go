package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// The story needs 8 places at first and 20 at last, and has a pool of 17.
const (
	storyRate            = 100 // requests per second
	storyFast, storySlow = 80 * time.Millisecond, 200 * time.Millisecond
	storyPool            = 17
	storyCalm            = 20 * time.Second // before the SSP slows down
	storyRamp            = 4 * time.Minute  // while it slows down
	storyMinute          = 65 * time.Second // the advice is of the last minute
	storyWarmUp          = 10 * time.Second // to open the connections of the larger pool
	storyAfter           = 75 * time.Second
	storyMayWait         = 0.03 // of the requests, with the advised size
)

// Story slows an SSP down until the pool is too small. A real Prometheus scrapes
// adbuffer, with the rules of deploy/prometheus as they are. It must alert before the
// first request is refused, and the advised size must end the waiting.
func Story(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("story", "A pool that gets too small, and what says so",
		"Does an alert fire before the first request is refused, and does the advised size end the waiting?")
	if !e.Has(r, "prometheus") {
		return nil, fmt.Errorf("prometheus: %w: scripts/install prometheus", rig.ErrMissing)
	}
	s := &story{Env: e, report: r, began: time.Now()}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	s.note("%d requests/s begin, to an SSP that takes %v, over a pool of %d connections", storyRate, storyFast, storyPool)
	small, err := s.tooSmall(ctx)
	if err != nil {
		return nil, err
	}
	advised := s.last.Need.Advised
	if advised <= storyPool || s.refused.IsZero() {
		return nil, errors.New("no larger pool was advised, or no request was refused: the story shows nothing")
	}
	s.note("the pool is set to the advised %d connections, in the running process", advised)
	if err := s.resize(ctx, advised); err != nil {
		return nil, err
	}
	large, waited, err := s.largeEnough(ctx)
	if err != nil {
		return nil, err
	}
	s.note("the end: %v", s.last)
	early, alert := !s.alerted.IsZero() && s.alerted.Before(s.refused), "No alert fired."
	if len(s.alerts) > 0 {
		alert = fmt.Sprintf("%s fired %v before.", s.alerts[0], s.refused.Sub(s.alerted).Round(time.Second))
	}
	r.Verdicts = []results.Verdict{
		{Promise: "an alert fires before the first request is refused", Held: early, Words: alert},
		{Promise: "with the advised size no request is refused", Held: large.Whole.Failed == 0,
			Words: fmt.Sprintf("With %d connections %s; with %d %s.", storyPool, failures(small.Whole), advised, failures(large.Whole))},
		{Promise: "with the advised size at most 3 % of the requests wait", Held: waited <= storyMayWait, Words: fmt.Sprintf("%.2f %% waited.", 100*waited)},
	}
	r.Tables = []results.Table{s.table}
	r.Notes = append(s.events, fmt.Sprintf("Poisson arrivals; max_pending 100, pending_timeout 250 ms. By Little's law the SSP keeps %.0f places busy at first and %.0f at last. "+
		"Prometheus scrapes adbuffer every 5 s.", storyRate*storyFast.Seconds(), storyRate*storySlow.Seconds()))
	return e.Done(r), nil
}

type story struct {
	*engine.Env
	report *results.Report
	began  time.Time
	ssp    *rig.SSP
	proxy  *rig.Adbuffer
	prom   string // host:port
	last   poolState
	table  results.Table
	events []string

	alerts           []string // in the order in which they fired
	alerted, refused time.Time
}

// poolState is what /pools says of the pool.
type poolState struct {
	Saturation float64
	Pending    int
	Lent       uint64
	Advice     string
	Limit      int `json:"connections_limit"`
	Need       struct {
		HoldSeconds float64 `json:"hold_seconds"`
		Load        float64
		Advised     int `json:"advised_connections"`
	}
}

func (p poolState) String() string {
	return fmt.Sprintf("held %.0f ms, %.0f places in use on average, saturation %.2f, %d waiting, advised %d connections",
		1000*p.Need.HoldSeconds, p.Need.Load, p.Saturation, p.Pending, p.Need.Advised)
}

func (s *story) config(conns int) string {
	return engine.Config{Deadline: "1s", SSPs: []engine.SSPConfig{{Name: "slowing", URL: s.ssp.URL,
		Pool: fmt.Sprintf("max_conns: %d, max_pending: 100, pending_timeout: 250ms", conns)}}}.YAML()
}

// start starts the SSP, adbuffer and Prometheus.
func (s *story) start(ctx context.Context) (err error) {
	s.table = results.Table{Title: "Every quarter of a minute: hold and load of the last minute, saturation and waiting requests of the moment",
		Columns: []string{"time", "place held, ms", "places in use on average", "saturation", "waiting", "advised connections"}}
	if s.ssp, err = s.Rig.StartSSP(rig.SSPOptions{Name: "slowing", Behaviour: sspsim.Behaviour{Latency: sspsim.Constant(storyFast)}}); err != nil {
		return err
	}
	if s.proxy, err = s.Rig.StartAdbuffer(ctx, s.Adbuffer, s.config(storyPool), ""); err != nil {
		return err
	}
	root, err := rig.ModuleRoot(ctx)
	if err != nil {
		return err
	}
	file, err := s.Rig.Write("prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: ["%s/*.rules.yml"]
scrape_configs: [{job_name: adbuffer, static_configs: [{targets: [%q]}]}]
`, filepath.Join(root, "deploy/prometheus"), s.proxy.Admin))
	if err != nil {
		return err
	}
	if s.prom, _, err = freeAddr(); err != nil {
		return err
	}
	p, err := s.Rig.Start(rig.Command{Name: "prometheus", Argv: []string{"prometheus", "--config.file", file,
		"--storage.tsdb.path", filepath.Join(s.Rig.Dir, "prometheus"), "--web.listen-address", s.prom, "--log.level=error"}})
	if err != nil {
		return err
	}
	return p.AwaitPort(ctx, s.prom, 30*time.Second)
}

// tooSmall loads the pool while the SSP slows down.
func (s *story) tooSmall(ctx context.Context) (m engine.Measured, err error) {
	ramp := func(since time.Duration) error {
		share := min(1, max(0, float64(since-storyCalm)/float64(storyRamp)))
		return s.ssp.Set(sspsim.Behaviour{Latency: sspsim.Constant(storyFast + time.Duration(share*float64(storySlow-storyFast)))})
	}
	s.note("the SSP slows down to %v over %v, after %v", storySlow, storyRamp, storyCalm)
	return s.load(ctx, 0, storyCalm+storyRamp+storyMinute, ramp)
}

// largeEnough loads the pool of the advised size, and returns the share of the requests
// that waited.
func (s *story) largeEnough(ctx context.Context) (m engine.Measured, share float64, err error) {
	var waited, lent float64
	count := func() (w, l float64) {
		w, err = s.proxy.Metric("adbuffer_pool_acquire_seconds_count", `outcome="waited"`)
		return w, float64(s.last.Lent)
	}
	m, loadErr := s.load(ctx, storyWarmUp, storyAfter, func(since time.Duration) error {
		if lent == 0 && since >= storyWarmUp {
			waited, lent = count()
		}
		return err
	})
	w, l := count()
	return m, (w - waited) / max(1, l-lent), errors.Join(loadErr, err)
}

// load sends requests, and looks once a second, after do.
func (s *story) load(ctx context.Context, warm, length time.Duration, do func(since time.Duration) error) (m engine.Measured, err error) {
	plan := engine.OpenLoop(s.proxy.Addr, 256, storyRate, warm, length, engine.Get("/fillbuffer"))
	plan.Poisson, plan.Tick = true, time.Second
	began := time.Now()
	m, loadErr := s.GenerateWatched(ctx, plan, 0, func(p load.Progress) {
		if err == nil {
			err = errors.Join(do(time.Since(began)), s.look(ctx, p))
		}
	})
	return m, errors.Join(loadErr, err)
}

// look notes the state of the pool, new alerts, and the first request that is refused.
func (s *story) look(ctx context.Context, p load.Progress) error {
	var pools struct{ Pools []poolState }
	var alerts struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := errors.Join(get(ctx, "http://"+s.proxy.Admin+"/pools", &pools), get(ctx, "http://"+s.prom+"/api/v1/alerts", &alerts)); err != nil {
		return err
	}
	s.last = pools.Pools[0]
	for _, a := range alerts.Data.Alerts {
		name := a.Labels["alertname"]
		if a.State != "firing" || slices.Contains(s.alerts, name) {
			continue
		}
		if s.alerts = append(s.alerts, name); s.alerted.IsZero() {
			s.alerted = time.Now()
		}
		s.note("**%s fires**; the page says: %s", name, s.last.Advice)
	}
	if s.refused.IsZero() && p.Errors > 0 {
		s.refused = time.Now()
		s.note("**the first request is refused**; %v", s.last)
	}
	if n := len(s.table.Rows); time.Since(s.began) >= time.Duration(n+1)*15*time.Second {
		s.table.Add(nil, s.at(), 1000*s.last.Need.HoldSeconds, s.last.Need.Load, s.last.Saturation, s.last.Pending, s.last.Need.Advised)
		s.Say("story: %s %v", s.at(), s.last)
	}
	return nil
}

// resize sets the pool's max_conns in the running process.
func (s *story) resize(ctx context.Context, conns int) error {
	if err := errors.Join(os.WriteFile(s.proxy.File, []byte(s.config(conns)), 0o600), s.proxy.Signal(syscall.SIGHUP)); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var pools struct{ Pools []poolState }
		if err := get(ctx, "http://"+s.proxy.Admin+"/pools", &pools); err != nil {
			return err
		}
		if pools.Pools[0].Limit == conns {
			return nil
		}
	}
	return fmt.Errorf("the pool was not set to %d connections: %s", conns, s.proxy.Log())
}

func (s *story) at() string {
	d := time.Since(s.began).Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func (s *story) note(format string, args ...any) {
	text := s.at() + " " + fmt.Sprintf(format, args...)
	s.events = append(s.events, text)
	s.Say("story: %s", strings.ReplaceAll(text, "**", ""))
}

// get decodes the JSON at a URL.
func get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(v)
}
