package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/operate/replay"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
)

// fromFile is a service whose configuration is in a file.
type fromFile struct {
	*service
	path string
	file *reload.File
}

// runFromFile starts a service from a file.
func runFromFile(t *testing.T, s setup) *fromFile {
	t.Helper()
	t.Parallel()
	path := filepath.Join(t.TempDir(), "adbuffer.yaml")
	write(t, path, []byte(s.yaml()))
	f := &fromFile{path: path, file: reload.NewFile(path)}
	f.service = runWith(t, s, Process{Reload: f.file.Post})
	f.file.Start(f.app, s.load(t), f.app.log)
	return f
}

// post asks for a reload.
func (f *fromFile) post(query string) (status int, body string) {
	res, err := f.client.Post("http://"+f.app.AdminAddr().String()+"/reload"+query, "", nil)
	testsupport.NoError(f.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	testsupport.NoError(f.t, err)
	return res.StatusCode, string(b)
}

// sampled sends requests to path, and waits until the sample has them all.
func (f *fromFile) sampled(path string, n int) {
	f.t.Helper()
	had, _ := f.app.proxy.Sample().Held()
	for range n {
		f.get(path)
	}
	f.await("the sample has the requests", func() bool {
		has, _ := f.app.proxy.Sample().Held()
		return has == had+n
	})
}

func TestAReloadThatChangesTheTrafficTooMuchIsRefused(t *testing.T) {
	a, b := sim(t, sspsim.Options{}), sim(t, sspsim.Options{})
	s := setup{admin: "sample: {requests: 6000, max_change: 0.1}", ssps: []string{at("a", a), at("b", b)}, routes: []string{to("x", "a"), to("y", "b")}}
	f := runFromFile(t, s)
	f.sampled("/x", 20)
	f.sampled("/y", 10)
	testsupport.True(t, strings.Contains(f.admin("/reload"), "no configuration has been tried"), "GET /reload responds with %s", f.admin("/reload"))

	changed := s
	changed.routes = []string{to("x", "b"), to("y", "b")}
	f.app.dryRun(t.Context(), []byte(changed.yaml()), true)
	page := f.admin("/reload")
	testsupport.True(t, strings.Contains(page, "# a reload would apply 1 change: 1 in place\n# traffic: ssp a: ") && strings.Contains(page, "that admin.sample.max_change allows\n# traffic: 30 sampled requests"), "after a dry run, GET /reload responds with %s", page)

	// By the watcher: b would get 30 requests instead of 10, and a none instead of 20.
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	hangups := make(chan os.Signal, 1)
	go func() {
		defer close(ended)
		f.file.Run(ctx, hangups)
	}()
	defer func() { stop(); <-ended }()
	write(t, f.path, []byte(changed.yaml()))
	f.await("the change of the file is refused", func() bool { return f.app.versions.LastFailed() != nil })
	const fault = "more than the 10 % that admin.sample.max_change allows; adbuffer reload --traffic --max-change 200% applies the file nevertheless"
	for what, text := range map[string]string{"log": f.logged(zap.ErrorLevel), "/overview": f.admin("/overview")} {
		testsupport.True(t, strings.Contains(text, "ssp a: ") && strings.Contains(text, fault), "the %s says %s", what, text)
	}
	f.wantMetric("config_last_reload_successful", "0")
	page = f.admin("/reload")
	testsupport.True(t, strings.Contains(page, "# a reload was refused\n# traffic: ssp a: ") && strings.Contains(page, "\n# traffic: ssp b: ") && strings.Contains(page, "ssp a     "), "GET /reload responds with %s", page)

	// By SIGHUP and by clients at once, each of which gets the result for its own limit.
	hangups <- os.Interrupt
	var wg sync.WaitGroup
	for query, want := range map[string]string{
		"": "10 % that admin.sample.max_change", "?traffic=1": "10 % that admin.sample.max_change",
		"?traffic=1&max_change=0.5": "more than the 50 % that --max-change allows", "?traffic=1&max_change=1.9": "more than the 190 % that --max-change allows",
	} {
		wg.Go(func() {
			status, body := f.post(query)
			testsupport.True(t, status == 422 && strings.Contains(body, want) && strings.Contains(body, `"exceeded"`), "POST /reload%s responds with %d %s", query, status, body)
		})
	}
	wg.Wait()
	testsupport.Equal(t, f.app.versions.Current().Config.Routes[0].SSPs[0].Name, "a", "route x asks %s")

	// Once, by the command.
	status, body := f.post("?traffic=1&max_change=2")
	testsupport.True(t, status == 200 && strings.Contains(body, `"result": "applied"`) && strings.Contains(body, `"requests": 30`), "POST /reload responds with %d %s", status, body)
	f.wantMetric("config_last_reload_successful", "1")
	f.want("/x", "b")
	testsupport.True(t, strings.Contains(f.admin("/reload"), "# a reload was applied\n"), "GET /reload responds with %s", f.admin("/reload"))

	// A reload that changes nothing is not tried, and the next change is refused again.
	status, body = f.post("?traffic=1&max_change=0")
	testsupport.True(t, status == 200 && strings.Contains(body, `"result": "unchanged"`) && !strings.Contains(body, `"traffic"`), "POST /reload responds with %d %s", status, body)

	// The configuration before may come back, once.
	for i, want := range []int{200, 422} {
		write(t, f.path, []byte([]string{s.yaml(), changed.yaml()}[i]))
		status, body = f.post("")
		testsupport.True(t, status == want, "POST /reload responds with %d %s, want %d", status, body, want)
	}
}

func TestTheLastTrialIsBounded(t *testing.T) {
	var a App
	rep := &replay.Report{Requests: 1, SSPs: make([]replay.SSP, 10_000)}
	a.noteTried("# a reload was refused\n", rep)
	text := a.lastTried()
	testsupport.True(t, len(text) <= 65_536+4 && len(text) > 65_000 && strings.HasSuffix(text, "…\n"), "%d bytes are kept, the last of which are %q", len(text), text[len(text)-20:])
}

// While nothing is sampled, only a client that gives a limit is refused.
func TestAReloadWithoutASample(t *testing.T) {
	a := sim(t, sspsim.Options{})
	for _, c := range []struct {
		admin, query string
		status       int
		logged       bool
		traffic      bool
	}{
		{"sample: {requests: 6000, max_change: 0.1}", "", 200, true, true},
		{"sample: {requests: 6000, max_change: 0.1}", "?traffic=1&max_change=inf", 200, false, true},
		{"sample: {requests: 6000, max_change: 0.1}", "?traffic=1&max_change=3", 422, false, true},
		{"sample: {requests: 1000}", "?traffic=1", 200, false, true},
		{"sample: {requests: 1000}", "", 200, false, false},
		{"", "?traffic=1", 200, false, true},
		{"", "?traffic=1&max_change=0.5", 422, false, true},
	} {
		t.Run(c.admin+c.query, func(t *testing.T) {
			s := setup{admin: c.admin, ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
			f := runFromFile(t, s)
			s.routes = []string{to("x", "a"), to("y", "a")}
			write(t, f.path, []byte(s.yaml()))
			status, body := f.post(c.query)
			why := strings.Contains(body, "no request is sampled yet: wait for traffic")
			testsupport.True(t, status == c.status && why == c.traffic, "%d %s", status, body)
			testsupport.True(t, (len(f.app.versions.Current().Config.Routes) == 2) == (c.status == 200), "%d routes are in force", len(f.app.versions.Current().Config.Routes))
			l := f.logged(zap.WarnLevel)
			testsupport.True(t, strings.Contains(l, "could not be tried on the traffic; see admin.sample.max_change") == c.logged, "the log says %s", l)
		})
	}
}

// A request whose value the sample masks may go elsewhere: a change that concerns more of them than the limit is untried.
func TestAReloadThatCannotBeJudged(t *testing.T) {
	a, b := sim(t, sspsim.Options{}), sim(t, sspsim.Options{})
	s := setup{admin: "sample: {requests: 6000, max_change: 0.1}", ssps: []string{at("a", a), at("b", b)}, routes: []string{to("x", "a")}}
	f := runFromFile(t, s)
	f.sampled("/x?token=k7", 30)
	f.sampled("/x", 2)
	text := strings.Replace(s.yaml(), "routes:\n", "routes:\n  - {name: top, match: {path: /x, query: [{name: token, value: k7}]}, ssps: [b]}\n", 1)
	write(t, f.path, []byte(text))
	const why = "/s could not be judged: the sample lacks their bodies, masks a value"
	status, body := f.post("?traffic=1&max_change=0.5")
	testsupport.True(t, status == 422 && strings.Contains(body, why), "%d %s", status, body)
	status, body = f.post("")
	testsupport.True(t, status == 200 && strings.Contains(f.logged(zap.WarnLevel), why), "%d %s; the log says %s", status, body, f.logged(zap.WarnLevel))
}

// Values of variables are hidden in what a dry run says of the traffic, and in what is kept of it.
func TestNoValueOfAVariableIsInTheLastTrial(t *testing.T) {
	t.Setenv("ROUTE_OF_THIS_TEST", "s3cret-value-0123")
	a := sim(t, sspsim.Options{})
	s := setup{admin: "sample: {requests: 6000, max_change: 0.1}", ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	f := &fromFile{service: runWith(t, s, Process{})}
	f.sampled("/x", 5)
	_, report := f.app.dryRun(t.Context(), []byte(strings.Replace(s.yaml(), "name: x", "name: '${ROUTE_OF_THIS_TEST}'", 1)), true)
	b, err := json.Marshal(report)
	testsupport.NoError(t, err)
	for what, text := range map[string]string{"response": string(b), "GET /reload": f.admin("/reload")} {
		testsupport.True(t, strings.Contains(text, "route (hidden)") && !strings.Contains(text, "s3cret"), "the %s has %s", what, text)
	}
	f.app.clearSample()
	testsupport.True(t, strings.Contains(f.admin("/reload"), "no configuration has been tried"), "after the sample was cleared, GET /reload responds with %s", f.admin("/reload"))
}

// The watcher applies a change that a client wanted to try, but gave up on.
func TestAChangeIsNotLostWithTheClientThatTriedIt(t *testing.T) {
	a := sim(t, sspsim.Options{})
	s := setup{admin: "sample: {requests: 6000, max_change: 0.1}", ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	f := runFromFile(t, s)
	f.sampled("/x", 5)
	s.routes = []string{to("x", "a"), to("y", "a")}
	write(t, f.path, []byte(s.yaml()))
	gone, leave := context.WithCancel(t.Context())
	leave()
	status, body := f.file.Post(gone, reload.Trial{Traffic: true})
	testsupport.True(t, status != 200 && len(f.app.versions.Current().Config.Routes) == 1, "%d %v", status, body)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.file.Run(ctx, nil)
	}()
	defer func() { stop(); <-ended }()
	f.await("the change is applied", func() bool { return len(f.app.versions.Current().Config.Routes) == 2 })
}

const twoSSPs = `
deadline: {openrtb_tmax: false}
ssps:
  - {name: s, endpoints: ["http://127.0.0.1:1/"]}
  - {name: u, endpoints: ["http://127.0.0.1:2/"]}
routes:
  - {name: r, match: {path: /a}, ssps: [s]}
`

// A trial that lasts longer than 30 s, here since a dry run is in progress, refuses a reload whose client gave a limit.
func TestATrialEndsAfterThirtySeconds(t *testing.T) {
	testsupport.Bubble(t, func(t *testing.T) {
		cfg, _, err := config.Parse([]byte(twoSSPs), nil)
		testsupport.NoError(t, err)
		e, err := newExplainer(cfg, "adbuffer-test")
		testsupport.NoError(t, err)
		defer e.Close()
		changed := *e.app.versions.Current().Config
		changed.Routes = slices.Clone(changed.Routes)
		changed.Routes[0].Match.Path = "/b"
		e.app.replaying <- struct{}{}
		begun, tenth := time.Now(), 0.1
		_, err = e.app.try(t.Context(), &changed, &reload.Trial{Traffic: true, MaxChange: &tenth})
		took := time.Since(begun)
		testsupport.True(t, err != nil && strings.Contains(err.Error(), "it lasts longer than 30s; see admin.sample.requests") && took == 30*time.Second, "after %v: %v", took, err)
	})
}

// A trial waits for the dry run in progress. It ends when its client leaves, and when the drain begins.
func TestATrialEndsWithItsClientAndWithTheDrain(t *testing.T) {
	a := sim(t, sspsim.Options{})
	s := setup{admin: "sample: {requests: 6000, max_change: 0.1}", ssps: []string{at("a", a)}, routes: []string{to("x", "a")}}
	f := runFromFile(t, s)
	f.sampled("/x", 1)
	f.app.replaying <- struct{}{} // a dry run is in progress
	s.routes = []string{to("x", "a"), to("y", "a")}
	cfg := s.load(t)
	try := func(ctx context.Context) chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := f.app.Reload(ctx, cfg, &reload.Trial{})
			ended <- err
		}()
		return ended
	}
	ctx, leave := context.WithCancel(t.Context())
	ended := try(ctx)
	leave()
	err := <-ended
	testsupport.True(t, errors.Is(err, context.Canceled) && f.app.versions.LastFailed() == nil, "after its client has left, a reload says %v", err)
	ended = try(t.Context())
	f.stop()
	err = <-ended
	testsupport.True(t, errors.Is(err, reload.ErrStopping), "after the drain has begun, a reload says %v", err)
	<-f.app.replaying
	testsupport.Equal(t, len(f.app.versions.Current().Config.Routes), 1, "%d routes are in force")
}
