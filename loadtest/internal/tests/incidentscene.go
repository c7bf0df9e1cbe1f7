package tests

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/stage"
)

// How long incidents take, and how soon they must be named and quiet again.
const (
	incidentCalm  = 45 * time.Second // before the incident; alerts on the start have ended then
	incidentLasts = 150 * time.Second
	incidentAfter = 200 * time.Second

	namedWithin, alertWithin = 15 * time.Second, 120 * time.Second
	quietWithin, alertQuiet  = 60 * time.Second, 180 * time.Second

	incidentRate = 40 // requests a second
)

// The sources that may name an incident.
const (
	byLog = iota
	byMetric
	byAlert
	byPage
	byExplain
	incidentSources
)

var sourceNames = [incidentSources]string{"log", "metrics", "alert", "page", "explain"}

// scene is an incident that runs: an adbuffer, its SSPs and its clients.
type scene struct {
	*incident
	env     *stage.Env
	dir     string
	config  string
	sims    []*sspsim.SSP
	port    int      // of the first SSP
	addr    string   // of adbuffer's listener
	admin   string   // of its admin listener
	prom    string   // of Prometheus
	logFile string   // "" = adbuffer's output
	stops   []func() // in order of start

	adbuffer  *rig.Process
	processes []*rig.Process // all adbuffers, in order of start
	expires   *expiring
	calmed    func() // ends a storm

	began, ended time.Time
	first        [incidentSources]time.Duration // after the begin; negative: not named
	last         [incidentSources]time.Time     // when it was named last
	misleading   []string
	read         int // bytes of the log that were looked at
}

var quietLog = log.New(io.Discard, "", 0)

// runIncidents lets all incidents happen at once, each to an adbuffer of its own, and one Prometheus with
// the rules of deploy/prometheus scrapes all.
func runIncidents(ctx context.Context, e *stage.Env) (*results.Report, error) {
	r := e.Report("incidents", "Fifteen incidents, and what named them",
		"Do log, metrics, alerts, page and explain name the cause soon, and are they quiet soon after it?")
	if err := stage.Needs(r, "prometheus"); err != nil {
		return nil, err
	}
	r.Note("%d requests/s to each adbuffer; each incident lasts %v. Prometheus scrapes every 2 s. The page shows what /pools has.", incidentRate, incidentLasts)
	var scenes []*scene
	defer func() {
		for _, s := range scenes {
			s.stop()
		}
	}()
	for i := range incidents {
		s := &scene{incident: &incidents[i], env: e, dir: filepath.Join(e.Rig.Dir, "incident-"+strconv.Itoa(i))}
		if s.root && os.Geteuid() != 0 {
			r.Misses("root, for the incident " + s.name)
			continue
		}
		scenes = append(scenes, s)
		if err := s.start(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	prom, err := startIncidentPrometheus(ctx, e, scenes)
	if err != nil {
		return nil, err
	}
	e.Say("incidents: all run for %v", incidentCalm+incidentLasts+incidentAfter)
	var wait sync.WaitGroup
	errs := make([]error, len(scenes))
	for i, s := range scenes {
		s.prom = prom
		wait.Go(func() {
			if err := s.run(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", s.name, err)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, err
	}
	judgeIncidents(r, scenes)
	return r, nil
}

func startIncidentPrometheus(ctx context.Context, e *stage.Env, scenes []*scene) (addr string, err error) {
	root, err := rig.ModuleRoot(ctx)
	if err != nil {
		return "", err
	}
	var targets []string
	for _, s := range scenes {
		targets = append(targets, strconv.Quote(s.admin))
	}
	file, err := e.Rig.Write("prometheus-*.yml", fmt.Sprintf(`
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 5s}
rule_files: ["%s/*.rules.yml"]
scrape_configs: [{job_name: adbuffer, static_configs: [{targets: [%s]}]}]
`, filepath.Join(root, "deploy/prometheus"), strings.Join(targets, ", ")))
	if err != nil {
		return "", err
	}
	addr, err = e.Rig.FreeAddr()
	if err != nil {
		return "", err
	}
	p, err := e.Rig.Start(rig.Command{Name: "prometheus", Argv: []string{"prometheus", "--config.file", file,
		"--storage.tsdb.path", filepath.Join(e.Rig.Dir, "prometheus"), "--web.listen-address", addr, "--log.level=error"}})
	if err != nil {
		return "", err
	}
	return addr, p.AwaitPort(ctx, addr, 30*time.Second)
}

// start starts the SSPs and adbuffer.
func (s *scene) start() (err error) {
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return err
	}
	var urls []string
	for i := range max(1, s.ssps) {
		sim, err := sspsim.Start(sspsim.Options{Behaviour: steady(incidentLatency)})
		if err != nil {
			return err
		}
		s.sims, s.stops = append(s.sims, sim), append(s.stops, func() { sim.Close() })
		url := strconv.Quote(sim.URL())
		if s.spare && i == s.ssps-1 {
			url = "{url: " + url + ", priority: 1}"
		}
		urls = append(urls, url)
	}
	_, port, _ := strings.Cut(s.sims[0].Addr(), ":")
	s.port, _ = strconv.Atoi(port)
	if s.prepare != nil {
		if err := s.prepare(s); err != nil {
			return err
		}
	}
	for _, addr := range []*string{&s.addr, &s.admin} {
		*addr, err = s.env.Rig.FreeAddr()
		if err != nil {
			return err
		}
	}
	endpoints := strings.Join(urls, ", ")
	if s.endpoint != "" {
		endpoints = fmt.Sprintf(s.endpoint, s.port)
	}
	s.config = strings.ReplaceAll(fmt.Sprintf(`server: {listen: %q, drain: {delay: 0s, timeout: 1s}%s}
admin: {listen: %q}
%s
ssps: [{name: ssp, endpoints: [%s]%s}]
routes: [{name: %q, match: {path: /fillbuffer}, ssps: [ssp]}]
`, s.addr, s.server, s.admin, s.top, endpoints, s.keys, s.route()), "$DIR", s.dir)
	if err := s.write("adbuffer.yaml", s.config); err != nil {
		return err
	}
	return s.startAdbuffer()
}

// route returns the name of the incident's route: the alerts about routes cover all instances.
func (s *scene) route() string { return strings.ToLower(strings.ReplaceAll(s.name, " ", "-")) }

// startAdbuffer starts an adbuffer, also beside another one.
func (s *scene) startAdbuffer() error {
	wrap := strings.ReplaceAll(s.wrap, "$DIR", s.dir)
	if wrap == "" {
		wrap = "exec "
	}
	p, err := s.env.Rig.Start(rig.Command{Name: "adbuffer", Argv: []string{"sh", "-c", wrap + s.env.Adbuffer + " serve --config " + s.dir + "/adbuffer.yaml"}})
	if err != nil {
		return err
	}
	s.adbuffer, s.processes = p, append(s.processes, p)
	s.stops = append(s.stops, p.Stop)
	// The log says it, since another process may respond.
	ready := fmt.Sprintf(`"msg":"ready","pid":%d,`, p.PID)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if strings.Contains(s.logText(), ready) {
			return nil
		}
	}
	return fmt.Errorf("adbuffer is not ready: %s", p.LastLog())
}

func (s *scene) stop() {
	if s.calmed != nil {
		s.calmed()
	}
	for i := len(s.stops) - 1; i >= 0; i-- {
		s.stops[i]()
	}
}

// run lets the incident happen, and looks at all sources once a second.
func (s *scene) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go s.load(ctx)
	stage.Sleep(ctx, incidentCalm)
	s.read = len(s.logText()) // lines of the start name nothing
	for i := range s.first {
		s.first[i] = -1
	}
	if err := s.begin(s); err != nil {
		return err
	}
	s.began = time.Now()
	for time.Since(s.began) < incidentLasts+incidentAfter && ctx.Err() == nil {
		if s.ended.IsZero() && time.Since(s.began) > incidentLasts {
			if err := s.end(s); err != nil {
				return err
			}
			s.ended = time.Now()
		}
		s.look()
		stage.Sleep(ctx, time.Second)
	}
	return nil
}

// load sends requests. Each takes at most a second, and some may be on their way at once.
func (s *scene) load(ctx context.Context) {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	body := bytes.Repeat([]byte("x"), s.body)
	for tick := time.NewTicker(time.Second / incidentRate); ctx.Err() == nil; <-tick.C {
		go func() {
			var res *http.Response
			var err error
			if s.body > 0 {
				res, err = client.Post("http://"+s.addr+"/fillbuffer", "application/json", bytes.NewReader(body))
			} else {
				res, err = client.Get("http://" + s.addr + "/fillbuffer")
			}
			if err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
	}
}

var incidentClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get sends a GET to the admin listener.
func (s *scene) get(path string) (string, error) {
	return ask(incidentClient.Get("http://" + s.admin + path))
}

func ask(res *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return string(b), err
}

// said returns what a source says: its text, or the error of asking it.
func said(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	return text
}

// logText returns all that the adbuffers have logged.
func (s *scene) logText() string {
	if s.logFile != "" {
		b, _ := os.ReadFile(s.logFile)
		return string(b)
	}
	var all []byte
	for _, p := range s.processes {
		all = append(all, p.Log()...)
	}
	return string(all)
}

// look notes which sources name the incident now, and which alerts mislead.
func (s *scene) look() {
	now := time.Now()
	note := func(source int, named bool) {
		if !named {
			return
		}
		s.last[source] = now
		if s.first[source] < 0 {
			s.first[source] = now.Sub(s.began)
		}
	}
	matches := func(expr, text string) bool { return expr != "" && regexp.MustCompile(expr).MatchString(text) }
	text := s.logText()
	fresh := text[min(s.read, len(text)):]
	s.read = len(text)
	note(byLog, matches(s.log, fresh))
	note(byPage, s.page != "" && matches(s.page, said(s.get("/pools"))))
	if s.explain != "" {
		note(byExplain, matches(s.explain, said(ask(incidentClient.Post("http://"+s.admin+"/explain", "", strings.NewReader("GET /fillbuffer HTTP/1.1\r\nHost: a\r\n\r\n"))))))
	}
	if s.metric != "" {
		note(byMetric, s.query(strings.ReplaceAll(s.metric, "$i", `instance="`+s.admin+`"`)))
	}
	for _, name := range s.alerts() {
		switch {
		case s.alert != "" && matches("^("+s.alert+")$", name):
			note(byAlert, true)
		case s.also == "" || !matches("^("+strings.TrimPrefix(s.also, "|")+")$", name):
			if !strings.Contains(strings.Join(s.misleading, " "), name) {
				s.misleading = append(s.misleading, name)
			}
		}
	}
}

// query reports whether a query has a result.
func (s *scene) query(expr string) bool {
	var v struct{ Data struct{ Result []any } }
	text, err := ask(incidentClient.Get("http://" + s.prom + "/api/v1/query?query=" + url.QueryEscape(expr)))
	return err == nil && json.Unmarshal([]byte(text), &v) == nil && len(v.Data.Result) > 0
}

// alerts returns the names of the alerts of this adbuffer, or of its route, that fire.
func (s *scene) alerts() (names []string) {
	var v struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	text, err := ask(incidentClient.Get("http://" + s.prom + "/api/v1/alerts"))
	if err != nil || json.Unmarshal([]byte(text), &v) != nil {
		return nil
	}
	for _, a := range v.Data.Alerts {
		if a.State == "firing" && (a.Labels["instance"] == s.admin || a.Labels["route"] == s.route()) {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// judgeIncidents adds the table and the verdicts.
func judgeIncidents(r *results.Report, scenes []*scene) {
	columns := []string{"incident"}
	for _, name := range sourceNames {
		columns = append(columns, name)
	}
	t := r.Table("Seconds until each source named it / until it was quiet after the end", append(columns, "other alerts")...)
	var unnamed, misled, loud []string
	for _, s := range scenes {
		cells := []any{s.name}
		named := 0
		for i := range sourceNames {
			cells = append(cells, s.cell(i))
			limit, quiet := namedWithin, quietWithin
			if i == byAlert {
				limit, quiet = alertWithin, alertQuiet
			}
			if i == byLog && s.logAfter {
				limit += incidentLasts
			}
			if s.first[i] >= 0 && s.first[i] <= limit {
				named++
			}
			if s.last[i].Sub(s.ended) > quiet {
				loud = append(loud, s.name+": "+sourceNames[i])
			}
		}
		needs := 3
		if s.needs > 0 {
			needs = s.needs
		}
		if named < needs {
			unnamed = append(unnamed, s.name)
		}
		if len(s.misleading) > 0 {
			misled = append(misled, s.name+": "+strings.Join(s.misleading, " "))
		}
		t.Add(nil, append(cells, strings.Join(s.misleading, " "))...)
	}
	r.Promise("each cause is named by at least three of the five within 15 s, by alerts within 120 s", len(unnamed) == 0, nil, "%s", orNone(unnamed))
	r.Promise("no alert misleads", len(misled) == 0, nil, "%s", orNone(misled))
	r.Promise("all are quiet within 60 s of the end, alerts within 180 s", len(loud) == 0, nil, "%s", orNone(loud))
}

func orNone(broken []string) string {
	if len(broken) == 0 {
		return "All did."
	}
	return "Not so: " + strings.Join(broken, "; ") + "."
}

// cell shows when a source named the incident, and when it was quiet again.
func (s *scene) cell(source int) string {
	if s.first[source] < 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f / %.0f", s.first[source].Seconds(), max(0, s.last[source].Sub(s.ended).Seconds()))
}

func pemOf(c tls.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
}
