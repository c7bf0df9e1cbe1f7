package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"adbuffer/loadtest/internal/load"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
)

// The story needs 8 places at first and 20 at last, and has a pool of 17.
const (
	storyRate            = 100 // requests per second
	storyFast, storySlow = 80 * time.Millisecond, 200 * time.Millisecond
	storyPool            = 17
	storyCalm            = 20 * time.Second // before the SSP slows down
	storyRamp            = 4 * time.Minute  // while it slows down
	storyMinute          = 65 * time.Second // the advice covers the last minute
	storyWarmUp          = 10 * time.Second // to open the connections of the larger pool
	storyAfter           = 75 * time.Second
	storyMayWait         = 0.03 // of the requests, with the advised size
)

// story slows an SSP down until the pool is too small. Prometheus must alert before adbuffer refuses the first
// request, and the advised size must end the waiting.
func story(e *rig.Rig) {
	r := e.Rep
	e.Needs("prometheus")
	r.Note("Poisson arrivals; max_pending 100, pending_timeout 250 ms. By Little's law the SSP keeps %.0f places "+
		"busy at first and %.0f at last. "+
		"Prometheus scrapes adbuffer every 5 s.", storyRate*storyFast.Seconds(), storyRate*storySlow.Seconds())
	st := e.Start(rig.Setup{SSPs: []*rig.SSP{{Name: "slowing", Behaviour: steady(storyFast), Pool: storyLimits(storyPool)}},
		Anywhere: true, Config: rig.Config{Deadline: "1s"}})
	defer st.Stop()
	s := &storyRun{Stage: st, states: r.Table("Every quarter of a minute: hold and load of the last minute, "+
		"saturation and waiting requests of the moment",
		"time", "place held, ms", "places in use on average", "saturation", "waiting", "advised connections")}
	s.prom = startPrometheus(e, "5s", st.Adbuffer.Admin)
	s.began = time.Now()
	small := s.tooSmall()
	s.resize()
	large, waited := s.largeEnough()
	lead, alert := time.Duration(0), "No alert fired."
	if len(s.alerts) > 0 {
		lead = s.refused.Sub(s.alerted)
		alert = fmt.Sprintf("%s fired %v before.", s.alerts[0], lead.Round(time.Second))
	}
	r.Promise("an alert fires before the first request is refused", lead > 0, nil, "%s", alert)
	r.Promise("with the advised size no request is refused", large.Failed == 0, nil,
		"With %v connections %s; with %v %s.", storyPool, small.Failures(), s.advised, large.Failures())
	r.Promise("with the advised size at most 3 % of the requests wait", waited <= storyMayWait, nil, "%s waited.",
		results.Percent(waited))
}

func storyLimits(conns int) string { return limits(conns, 100, "250ms") }

// storyRun is the state of a run of the story.
type storyRun struct {
	*rig.Stage
	began   time.Time
	prom    string // host:port
	last    poolState
	states  *results.Table
	looked  int // quarters of a minute
	advised int // the size that the pool was set to

	alerts           []string // in the order in which they fired
	alerted, refused time.Time
}

// poolState is the part of /pools that the story reads.
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

// startPrometheus starts Prometheus with the rules of deploy/prometheus, and returns its host:port. It
// scrapes targets, which are host:port of admin listeners.
func startPrometheus(e *rig.Rig, scrapeInterval string, targets ...string) (addr string) {
	root := e.ModuleRoot()
	file := e.Write("prometheus-*.yml", fmt.Sprintf(`
global: {scrape_interval: %s, evaluation_interval: 5s}
rule_files: ["%s/*.rules.yml"]
scrape_configs: [{job_name: adbuffer, static_configs: [{targets: ["%s"]}]}]
`, scrapeInterval, filepath.Join(root, "deploy/prometheus"), strings.Join(targets, `", "`)))
	addr = e.FreeAddr()
	p := e.StartProcess(rig.Command{Name: "prometheus", Argv: []string{"prometheus", "--config.file", file,
		"--storage.tsdb.path", filepath.Join(e.Dir, "prometheus"), "--web.listen-address", addr, "--log.level=error"}})
	p.AwaitPort(addr, 30*time.Second)
	return addr
}

func firing(prom string) (labels []map[string]string, err error) {
	var v struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	err = rig.GetJSON("http://"+prom+"/api/v1/alerts", &v)
	for _, a := range v.Data.Alerts {
		if a.State == "firing" {
			labels = append(labels, a.Labels)
		}
	}
	return labels, err
}

// tooSmall loads the pool while the SSP slows down.
func (s *storyRun) tooSmall() *rig.Figures {
	s.note("%d requests/s begin, to an SSP that takes %v, over a pool of %d connections; it slows "+
		"down to %v over %v, after %v", storyRate, storyFast, storyPool, storySlow, storyRamp, storyCalm)
	return s.load(storyCalm+storyRamp+storyMinute, func(since time.Duration) {
		share := min(1, max(0, float64(since-storyCalm)/float64(storyRamp)))
		s.SSPs[0].Set(steady(storyFast + time.Duration(share*float64(storySlow-storyFast))))
	})
}

// resize sets the pool's max_conns to the advised size in the running process.
func (s *storyRun) resize() {
	s.advised = s.last.Need.Advised
	if s.advised <= storyPool || s.refused.IsZero() {
		s.Check(errors.New("no larger pool was advised, or no request was refused: the story shows nothing"))
	}
	s.note("the pool is set to the advised %d connections, in the running process", s.advised)
	text := rig.Must(os.ReadFile(s.Adbuffer.File))(s.Rig)
	changed := strings.Replace(string(text), storyLimits(storyPool), storyLimits(s.advised), 1)
	s.Check(os.WriteFile(s.Adbuffer.File, []byte(changed), 0o600))
	s.Check(s.Adbuffer.Signal(syscall.SIGHUP))
	s.Adbuffer.Await(20*time.Second, fmt.Sprintf("set the pool to %d connections", s.advised), func() bool {
		s.readPool()
		return s.last.Limit == s.advised
	})
}

// largeEnough loads the pool of the advised size, and measures which share of the requests waited.
func (s *storyRun) largeEnough() (f *rig.Figures, share float64) {
	count := func() (waited, lent float64) {
		return s.Adbuffer.Metric("adbuffer_pool_acquire_seconds_count", `outcome="waited"`), float64(s.last.Lent)
	}
	same := func(time.Duration) {}
	s.load(storyWarmUp, same)
	waited, lent := count()
	f = s.load(storyAfter, same)
	waitedAfter, lentAfter := count()
	s.note("the end")
	return f, (waitedAfter - waited) / max(1, lentAfter-lent)
}

func (s *storyRun) load(length time.Duration, do func(since time.Duration)) *rig.Figures {
	plan := rig.OpenLoop(256, storyRate, 0, length, rig.Get("/fillbuffer"))
	plan.Poisson, plan.Tick = true, time.Second
	began := time.Now()
	return s.Measure(rig.Watched(plan, false, func(p load.Progress) {
		do(time.Since(began))
		s.look(p)
	}))
}

// look notes the state of the pool, new alerts, and the first refused request.
func (s *storyRun) look(p load.Progress) {
	s.readPool()
	for _, labels := range rig.Must(firing(s.prom))(s.Rig) {
		name := labels["alertname"]
		if slices.Contains(s.alerts, name) {
			continue
		}
		s.alerts = append(s.alerts, name)
		if s.alerted.IsZero() {
			s.alerted = time.Now()
		}
		s.note("**%s fires**; the page says: %s", name, s.last.Advice)
	}
	if s.refused.IsZero() && p.Errors > 0 {
		s.refused = time.Now()
		s.note("**the first request is refused**")
	}
	if quarters := int(time.Since(s.began) / (15 * time.Second)); quarters > s.looked {
		s.looked = quarters
		p := s.last
		s.states.Add(nil, s.at(), 1000*p.Need.HoldSeconds, p.Need.Load, p.Saturation, p.Pending, p.Need.Advised)
		s.Next("story: %s held %.0f ms, %.0f places in use on average, saturation %.2f, %d waiting, advised %d connections",
			s.at(), 1000*p.Need.HoldSeconds, p.Need.Load, p.Saturation, p.Pending, p.Need.Advised)
	}
}

// at returns the time since the begin of the story.
func (s *storyRun) at() string {
	d := time.Since(s.began).Round(time.Second)
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func (s *storyRun) note(format string, args ...any) {
	event := fmt.Sprintf(format, args...)
	s.Rep.Note("%s %s", s.at(), event)
	s.Next("story: %s %s", s.at(), strings.ReplaceAll(event, "**", ""))
}

func (s *storyRun) readPool() {
	var pools struct{ Pools []poolState }
	s.Check(rig.GetJSON("http://"+s.Adbuffer.Admin+"/pools", &pools))
	s.last = pools.Pools[0]
}
