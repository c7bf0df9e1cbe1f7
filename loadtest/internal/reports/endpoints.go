package reports

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"adbuffer/internal/sspsim"
	"adbuffer/loadtest/internal/results"
	"adbuffer/loadtest/internal/rig"
	"adbuffer/loadtest/internal/engine"
)

// endpointsRate is how many requests a second come in; half of them fail if nothing is ejected.
const endpointsRate = 200

// Endpoints makes one of an SSP's two endpoints respond 500, and later repairs it. It tells the story
// for adbuffer with ejection and without, and for Envoy and HAProxy.
func Endpoints(ctx context.Context, e *engine.Env) (*results.Report, error) {
	r := e.Report("endpoints", "One of two endpoints responds 500",
		"How many requests does an endpoint cost that fails, and how soon is it back after it was repaired?")
	t := results.Table{Title: fmt.Sprintf("%d requests/s to two endpoints; then one responds 500 to everything", endpointsRate),
		Columns: []string{"proxy", "failed, first window", "of", "failed, next window", "of", "share %", "back after, s"}}
	chart := results.Chart{Title: "Failed requests", Kind: "bar", Y: "%", Series: []results.Series{{Name: "first window"}, {Name: "next window"}}}
	for _, p := range []struct {
		name, program string
		start         func(context.Context, *engine.Env, [2]string) (string, *rig.Process, error)
	}{
		{"adbuffer", "", startEjecting("")},
		{"adbuffer, ejection off", "", startEjecting("ejection: {enabled: false}")},
		{"Envoy, outlier detection", "envoy", startOutlierEnvoy},
		{"HAProxy, observe layer7", "haproxy", startObservingHAProxy},
	} {
		s, err := tellEndpoints(ctx, e, p.name, p.start)
		if errors.Is(err, rig.ErrMissing) {
			r.Notes = append(r.Notes, fmt.Sprintf("%s is missing here: %v", p.name, err))
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		share := 100 * float64(s.failed[1]) / float64(max(s.sent[1], 1))
		back := "never"
		if s.back > 0 {
			back = results.Number(s.back.Seconds())
		}
		t.Add(nil, p.name, s.failed[0], s.sent[0], s.failed[1], s.sent[1], share, back)
		chart.Labels = append(chart.Labels, p.name)
		for i := range s.failed {
			chart.Series[i].Values = append(chart.Series[i].Values, 100*float64(s.failed[i])/float64(max(s.sent[i], 1)))
		}
		if p.name == "adbuffer" {
			r.Verdicts = append(r.Verdicts, results.Verdict{Promise: "an endpoint that fails costs less than 1 % of the requests after one window, and is back within 10 s",
				Held:  share < 1 && s.back > 0 && s.back <= 10*time.Second,
				Words: fmt.Sprintf("%d of %d requests failed in the window after the first; the endpoint was back %s s after it was repaired.", s.failed[1], s.sent[1], back)})
		}
	}
	r.Tables, r.Charts = []results.Table{t}, []results.Chart{chart}
	return e.Done(r), nil
}

// endpointsStory is what one proxy did.
type endpointsStory struct {
	failed, sent [2]uint64     // of the first window after the endpoint broke, and of the next
	back         time.Duration // until the repaired endpoint had its share again; 0 = it never had
}

func tellEndpoints(ctx context.Context, e *engine.Env, name string, start func(context.Context, *engine.Env, [2]string) (string, *rig.Process, error)) (s endpointsStory, err error) {
	e.Say("endpoints: %s", name)
	var ssps [2]*rig.SSP
	var urls [2]string
	healthy := sspsim.Behaviour{Latency: sspsim.Constant(5 * time.Millisecond)}
	for i := range ssps {
		if ssps[i], err = e.Rig.StartSSP(rig.SSPOptions{Name: fmt.Sprintf("%s %d", name, i), Behaviour: healthy, Seed: uint64(i), Cores: e.LoadCores}); err != nil {
			return s, err
		}
		defer ssps[i].Stop()
		urls[i] = ssps[i].URL
	}
	addr, process, err := start(ctx, e, urls)
	if err != nil {
		return s, err
	}
	defer process.Stop()
	window := e.Time(10*time.Second, 3*time.Second)
	run := func(length time.Duration) (failed, sent uint64, err error) {
		plan := engine.OpenLoop(addr, 64, endpointsRate, 0, length, page("page", "/fillbuffer"))
		plan.Statuses = []int{200}
		m, err := e.Generate(ctx, plan, 0)
		if err != nil {
			return 0, 0, err
		}
		return m.Whole.Failed, m.Whole.Offered, nil
	}
	if _, _, err := run(time.Second); err != nil {
		return s, err
	}
	broken := healthy
	broken.Faults.Status = sspsim.Status{Chance: sspsim.Always, Code: 500}
	if err := ssps[1].Set(broken); err != nil {
		return s, err
	}
	e.Say("endpoints: %s: the second endpoint responds 500 now", name)
	for i := range s.failed {
		if s.failed[i], s.sent[i], err = run(window); err != nil {
			return s, err
		}
		e.Say("endpoints: %s: %d of %d requests failed in window %d", name, s.failed[i], s.sent[i], i+1)
	}
	if err := ssps[1].Set(healthy); err != nil {
		return s, err
	}
	repaired := time.Now()
	for time.Since(repaired) < 30*time.Second {
		before, err := ssps[1].Counters()
		if err != nil {
			return s, err
		}
		_, sent, err := run(time.Second)
		if err != nil {
			return s, err
		}
		after, err := ssps[1].Counters()
		if err != nil {
			return s, err
		}
		if float64(after.Requests-before.Requests) > 0.4*float64(sent) {
			s.back = time.Since(repaired)
			e.Say("endpoints: %s: the repaired endpoint has its share again after %.1f s", name, s.back.Seconds())
			break
		}
	}
	return s, nil
}

func startEjecting(more string) func(context.Context, *engine.Env, [2]string) (string, *rig.Process, error) {
	return func(ctx context.Context, e *engine.Env, urls [2]string) (string, *rig.Process, error) {
		// The breaker would shed what the comparison counts as failed.
		ssp := engine.SSPConfig{Name: "ssp", URL: urls[0], OtherURLs: urls[1:], More: []string{"breaker: {enabled: false}"}}
		if more != "" {
			ssp.More = append(ssp.More, more)
		}
		a, err := e.Rig.StartAdbuffer(ctx, e.Adbuffer, engine.Config{Deadline: "2s", SSPs: []engine.SSPConfig{ssp}}.YAML(), e.ProxyCores)
		if err != nil {
			return "", nil, err
		}
		return a.Addr, a.Process, nil
	}
}

// outlierCluster is a cluster with two endpoints and settings like adbuffer's defaults.
const outlierCluster = `
  - name: pair
    type: STATIC
    outlier_detection: {consecutive_5xx: 5, interval: 1s, base_ejection_time: 5s, max_ejection_percent: 50}
    load_assignment: {cluster_name: c, endpoints: [{lb_endpoints: [%s]}]}`

func startOutlierEnvoy(ctx context.Context, e *engine.Env, urls [2]string) (string, *rig.Process, error) {
	exe, err := envoyPath()
	if err != nil {
		return "", nil, err
	}
	port, err := rig.FreePort()
	if err != nil {
		return "", nil, err
	}
	var list []string
	for _, u := range urls {
		host, upPort, _ := strings.Cut(engine.HostOf(u), ":")
		list = append(list, fmt.Sprintf("{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}", host, upPort))
	}
	path, err := file(e, "envoy-endpoints.yaml", "static_resources:\n  listeners:"+fmt.Sprintf(envoyListener, port, "pair")+"\n  clusters:"+fmt.Sprintf(outlierCluster, strings.Join(list, ", "))+"\n")
	if err != nil {
		return "", nil, err
	}
	p, err := e.Rig.Start(rig.Command{Name: "envoy", Argv: []string{exe, "-c", path, "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"}, Cores: e.ProxyCores})
	if err != nil {
		return "", nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	return addr, p, p.AwaitPort(ctx, addr, startTimeout)
}

func startObservingHAProxy(ctx context.Context, e *engine.Env, urls [2]string) (string, *rig.Process, error) {
	if _, err := rig.Find("haproxy"); err != nil {
		return "", nil, err
	}
	port, err := rig.FreePort()
	if err != nil {
		return "", nil, err
	}
	conf := &strings.Builder{}
	fmt.Fprintf(conf, `global
  nbthread 1
defaults
  mode http
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  http-reuse always
frontend f
  bind 127.0.0.1:%d
  default_backend b
backend b
  option httpchk GET /bid
  http-check expect status 200
  default-server check inter 5s fall 1 rise 1 observe layer7 error-limit 5 on-error mark-down
`, port)
	for i, u := range urls {
		fmt.Fprintf(conf, "  server s%d %s\n", i, engine.HostOf(u))
	}
	path, err := file(e, "haproxy-endpoints.cfg", conf.String())
	if err != nil {
		return "", nil, err
	}
	p, err := e.Rig.Start(rig.Command{Name: "haproxy", Argv: []string{"haproxy", "-db", "-f", path}, Cores: e.ProxyCores})
	if err != nil {
		return "", nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	return addr, p, p.AwaitPort(ctx, addr, startTimeout)
}
