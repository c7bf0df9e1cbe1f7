package tests

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/rig"
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

// scene is an incident that runs: an adbuffer, its SSPs and its clients.
type scene struct {
	*incident
	e       *rig.Rig
	dir     string
	config  string
	sims    []*sspsim.SSP
	port    int    // of the first SSP
	addr    string // of adbuffer's listener
	admin   string // of its admin listener
	prom    string // of Prometheus
	logFile string // "" = adbuffer's output
	unmount func() // nil = nothing is mounted

	adbuffer  *rig.Process
	processes []*rig.Process // all adbuffers, in order of start
	expires   *expiring
	calm      func() // ends a storm

	began, ended time.Time
	names        names
}

// check ends the test if err is not nil.
func (s *scene) check(err error) {
	if err != nil {
		s.e.Check(fmt.Errorf("%s: %w", s.name, err))
	}
}

// incidentsCommand lets all incidents happen at once, each to an adbuffer of its own, and one Prometheus with
// the rules of deploy/prometheus scrapes all.
func incidentsCommand() Command {
	only := "" // the incidents with this text in their names
	return Command{Name: "incidents", Short: "Fifteen incidents, and what named them: seven minutes",
		Question: "Do log, metrics, alerts, page and explain name the cause soon, and are they quiet soon after it?",
		Long: `Lets fifteen things go wrong at once, each to an adbuffer of its own: a slow SSP, dead endpoints,
an expired certificate, DNS, a pool that is too small, a storm of clients, 256 open files, a full disk,
little memory, a broken reload, SIGTERM, kill -9, a hand-over, overload. A real Prometheus evaluates
the rules of deploy/prometheus. It needs Linux; two incidents need root.`,
		Test:    func(e *rig.Rig) { runIncidents(e, only) },
		Example: "  go run ./loadtest incidents\n  go run ./loadtest incidents --only overload",
		Alone:   true,
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&only, "only", "", "only the incidents with this `text` in their names")
		},
	}
}

func runIncidents(e *rig.Rig, only string) {
	r := e.Rep
	e.Needs("prometheus")
	r.Note("%d requests/s to each adbuffer; each incident lasts %v. Prometheus scrapes every 2 s. The page shows what /overview and /pools have. While nothing listens, page and explain can only say so.", incidentRate, incidentLasts)
	var scenes []*scene
	var admins []string
	defer func() {
		for _, s := range scenes {
			if s.unmount != nil {
				s.unmount()
			}
		}
	}()
	for i := range incidents {
		if !strings.Contains(incidents[i].name, only) {
			continue
		}
		s := &scene{incident: &incidents[i], e: e, names: names{by: map[string]naming{}}, dir: filepath.Join(e.Dir, "incident-"+strconv.Itoa(i))}
		if s.root && os.Geteuid() != 0 {
			r.Misses("root, for the incident " + s.name)
			continue
		}
		scenes = append(scenes, s)
		e.Next("incidents: starting %s", s.name)
		s.start()
		admins = append(admins, s.admin)
	}
	if len(scenes) == 0 {
		e.Check(fmt.Errorf("no incident has %q in its name", only))
	}
	prom := startPrometheus(e, "2s", admins...)
	e.Next("incidents: all run for %v", incidentCalm+incidentLasts+incidentAfter)
	var wait sync.WaitGroup
	for _, s := range scenes {
		s.prom = prom
		wait.Go(s.run)
	}
	wait.Wait()
	e.Check(e.Ctx.Err())
	judgeIncidents(r, scenes)
}

// start starts the SSPs and adbuffer.
func (s *scene) start() {
	s.check(os.Mkdir(s.dir, 0o755))
	var urls []string
	for i := range max(1, s.ssps) {
		sim, err := sspsim.Start(sspsim.Options{Behaviour: steady(incidentLatency)})
		s.check(err)
		s.sims = append(s.sims, sim)
		url := strconv.Quote(sim.URL())
		if s.spare && i == s.ssps-1 {
			url = "{url: " + url + ", priority: 1}"
		}
		urls = append(urls, url)
	}
	_, port, _ := strings.Cut(s.sims[0].Addr(), ":")
	s.port, _ = strconv.Atoi(port)
	if s.prepare != nil {
		s.prepare(s)
	}
	s.addr, s.admin = s.e.FreeAddr(), s.e.FreeAddr()
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
	s.write("adbuffer.yaml", s.config)
	s.startAdbuffer()
}

// route returns the name of the incident's route: the alerts about routes cover all instances.
func (s *scene) route() string { return strings.ToLower(strings.ReplaceAll(s.name, " ", "-")) }

// startAdbuffer starts an adbuffer, also beside another one.
func (s *scene) startAdbuffer() {
	line := cmp.Or(strings.ReplaceAll(s.wrap, "$DIR", s.dir), "exec ") + s.e.Adbuffer + " serve --config " + s.dir + "/adbuffer.yaml"
	p := s.e.StartProcess(rig.Command{Name: "adbuffer", Argv: []string{"sh", "-c", line}})
	s.adbuffer, s.processes = p, append(s.processes, p)
	// The log says it, since another process may respond.
	ready := fmt.Sprintf(`"msg":"ready","pid":%d,`, p.PID)
	p.Await(20*time.Second, "get ready", func() bool { return strings.Contains(s.logText(), ready) })
}

// run lets the incident happen, and looks at all sources once a second.
func (s *scene) run() {
	ctx, stop := context.WithCancel(s.e.Ctx)
	defer stop()
	go s.load(ctx)
	rig.Sleep(ctx, incidentCalm)
	s.names.read = len(s.logText()) // lines of the start name nothing
	s.begin(s)
	s.began = time.Now()
	for time.Since(s.began) < incidentLasts+incidentAfter && ctx.Err() == nil {
		if s.ended.IsZero() && time.Since(s.began) > incidentLasts {
			s.end(s)
			s.ended = time.Now()
		}
		s.look()
		rig.Sleep(ctx, time.Second)
	}
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
