package main

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"adbuffer/internal/setup/config"
	"adbuffer/internal/test/testsupport"
)

// runHere runs a command line in this process.
func runHere(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		testsupport.NoError(t, err)
		return f
	}
	out, log := open("out"), open("err")
	code = run(t.Context(), args, out, log)
	read := func(f *os.File) string {
		f.Close()
		b, err := os.ReadFile(f.Name())
		testsupport.NoError(t, err)
		return string(b)
	}
	return read(out), read(log), code
}

func plan(t testing.TB, args ...string) string {
	t.Helper()
	out, log, code := runHere(t, append([]string{"plan"}, args...)...)
	testsupport.MustTrue(t, code == 0, "plan %v: exit status %d: %s", args, code, log)
	return out
}

// wantRow checks that a line with this label has these words, with any text between them.
func wantRow(t *testing.T, text, label string, words ...string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, label) {
			for _, w := range words {
				if !regexp.MustCompile(`(^|[\s(])` + regexp.QuoteMeta(w) + `($|[\s)])`).MatchString(line) {
					t.Errorf("the row %q lacks %q", strings.TrimSpace(line), w)
				}
			}
			return
		}
	}
	t.Errorf("there is no row %q in\n%s", label, text)
}

// The worked example: 150 places in use, and a pool of 176 by exact Erlang C. The rule of thumb
// gives 175, which is full at 874 requests/s if the SSP's time rises to 200 ms.
func TestPlanOfTheWorkedExample(t *testing.T) {
	out := plan(t, "--rps", "20000", "--p50", "80ms", "--p99", "250ms", "--replicas", "12")
	wantRow(t, out, "places in use on average (L", "150", "1,804")
	wantRow(t, out, "pool size, exact Erlang C (N)", "176", "2,112")
	wantRow(t, out, "pool size, rule of thumb L + 2·√L", "175", "174.85")
	wantRow(t, out, "N is full at, when W is 200ms", "880", "10,560")
	wantRow(t, out, "L + 2·√L is full at that W", "874")
	wantRow(t, out, "HTTP/2 connections of 100, at least", "2", "24")
	if !strings.Contains(out, "max_conns: 176") || strings.Contains(out, "warning") {
		t.Errorf("the YAML lacks max_conns, or there is a warning:\n%s", out)
	}
}

func TestPlanPrintsTheSameAsJSON(t *testing.T) {
	var v struct {
		Waiting float64
		SSPs    []map[string]any
	}
	if err := json.Unmarshal([]byte(plan(t, "--rps", "20000", "--p50", "80ms", "--p99", "250ms", "--replicas", "12", "--ssp", "openx", "--waiting", "3%", "--json")), &v); err != nil {
		t.Fatal(err)
	}
	testsupport.MustTrue(t, len(v.SSPs) == 1 && v.Waiting == 0.03, "%+v", v)
	for key, want := range map[string]string{
		"ssp": "openx", "places": "176", "total_places": "2112", "rule_places": "174.85", "rule_slow_full_rps": "874.2", "slow_hold_seconds": "0.2",
		"setting": "max_conns", "value": "176", "warnings": "[]",
	} {
		if got := fmt.Sprint(v.SSPs[0][key]); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
}

// config must accept the YAML that plan prints.
func TestPlannedYAMLIsAConfiguration(t *testing.T) {
	for _, protocol := range []string{"auto", "http1", "http1-pipelined", "http2", "h2c"} {
		for _, rps := range []string{"1", "5000", "400000"} {
			out := plan(t, "--rps", rps, "--p50", "80ms", "--p99", "250ms", "--protocol", protocol, "--ssp", "openx", "--streams", "10")
			_, text, _ := strings.Cut(out, "\nssps:\n")
			text, _, _ = strings.Cut(text, "\nwarning:")
			scheme := map[string]string{"http2": "https"}[protocol]
			if scheme == "" {
				scheme = "http"
			}
			full := "ssps:\n" + strings.TrimRight(text, "\n") + fmt.Sprintf("\n    protocol: %s\n    endpoints: [\"%s://127.0.0.1:9000/bid\"]\n", protocol, scheme) +
				"routes: [{name: default, match: {path: /fillbuffer}, ssps: [openx]}]\n"
			if _, _, err := config.Parse([]byte(full), nil); err != nil {
				t.Errorf("%s, %s requests/s: %v\n%s", protocol, rps, err, full)
			}
		}
	}
}

func TestPlanWarnsOfLimitsOfTheSystem(t *testing.T) {
	out := plan(t, "--rps", "400000", "--p50", "80ms", "--p99", "250ms", "--protocol", "http1")
	for _, want := range []string{"warning: file descriptors:", "warning: ephemeral ports:"} {
		testsupport.True(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	if out := plan(t, "--rps", "400000", "--p50", "80ms", "--p99", "250ms", "--protocol", "http2"); strings.Contains(out, "warning:") {
		t.Errorf("over HTTP/2 there are a few hundred connections, but plan prints:\n%s", out)
	}
	if out := plan(t, "--rps", "1000000", "--p50", "80ms", "--p99", "250ms", "--protocol", "http1"); !strings.Contains(out, "max_conns ends at 65536") {
		t.Errorf("a pool above the limit of max_conns gets no warning:\n%s", out)
	}
}

func TestImpossibleNumbersAreNamedAllAtOnce(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--rps -1 --p50 80ms --p99 20ms --waiting 0", "--rps -1: must be between|--p99 20ms: must not be below p50|--waiting 0: must be above 0"},
		{"--rps 100 --p50 1ms --p99 1h", "--p99 1h0m0s: is too far above p50"},
		{"--rps 100 --p50 0 --p99 0 --replicas 0", "--p50 0s: must be above 0|--replicas 0: must be between"},
		{"--rps 100 --p50 1ms --p99 2ms --streams 0 --ports 70000", "--streams 0: must be|--ports 70000: must be"},
		{"--rps 100 --p50 1ms --p99 2ms --slow -5ms", "--slow -5ms: must be above 0"},
		{"--rps 100 --p50 1ms", "--p99 missing"},
		{"", "--rps, --p50, --p99 missing; or name a running adbuffer with --admin"},
		{"--rps 100 --p50 1ms --p99 2ms --protocol spdy", "--protocol spdy: must be auto, http1"},
		{"--rps 100 --admin http://127.0.0.1:9", "--rps cannot be given with --admin"},
		{"--shape --waiting 1% --admin http://127.0.0.1:9", "--waiting cannot be given with --shape"},
		{"--rps 100 --p50 1ms --p99 2ms --waiting many", "write 3% or 0.03"},
		{"--rps 100 --p50 80 --p99 250ms", "missing unit"},
	} {
		out, log, code := runHere(t, append([]string{"plan"}, strings.Fields(c.args)...)...)
		testsupport.True(t, code == exitUsage && out == "", "plan %s: exit status %d, printed %q", c.args, code, out)
		for _, want := range strings.Split(c.want, "|") {
			testsupport.True(t, strings.Contains(log, want), "plan %s says %q, want %q", c.args, log, want)
		}
	}
}

// poolsOf serves /pools as adbuffer does, and no other path.
func poolsOf(t *testing.T, token string) string {
	s := httptest.NewServer(poolsHandler(token))
	t.Cleanup(s.Close)
	return s.URL
}

// poolsHandler serves /pools, with the token if it is not "".
func poolsHandler(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/pools":
			http.NotFound(w, r)
		case token != "" && r.Header.Get("Authorization") != "Bearer "+token:
			http.Error(w, "this needs the token", http.StatusForbidden)
		default:
			fmt.Fprint(w, `{"service":{"open_files_limit":415},"pools":[
				{"ssp":"openx","protocol":"http1","need":{"arrivals_per_second":1666.7,"hold_seconds":0.0902},"limits":{"max_conns":100,"max_http2_conns":4,"max_streams_per_conn":100},
					"auto":{"limit":97}},
				{"ssp":"beta","protocol":"http2","need":{"arrivals_per_second":1000,"hold_seconds":0.05},"limits":{"max_conns":256,"max_http2_conns":4,"max_streams_per_conn":20}},
				{"ssp":"idle","protocol":"unknown","need":{"arrivals_per_second":0,"hold_seconds":0},"limits":{"max_conns":256}}]}`)
		}
	})
}

// --ca-file names the authority of a listener with TLS.
func TestPlanFromAListenerWithTLS(t *testing.T) {
	s := httptest.NewTLSServer(poolsHandler(""))
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	testsupport.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	plan(t, "--admin", s.URL, "--ca-file", ca)
	if _, log, code := runHere(t, "plan", "--admin", s.URL); code != exitFailed || !strings.Contains(log, "certificate") {
		t.Errorf("without the authority: exit status %d: %s", code, log)
	}
}

func TestPlanFromARunningAdbuffer(t *testing.T) {
	out := plan(t, "--admin", poolsOf(t, ""))
	wantRow(t, out, "openx ", "http1", "150", "176", "100")
	wantRow(t, out, "beta ", "http2", "65", "7", "4")
	for _, want := range []string{"max_conns: 176   # now 100, which is too few; pool.auto uses 97 places of it", "max_http2_conns: 7   # now 4, which is too few", "max_streams_per_conn: 20"} {
		testsupport.True(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	const warning = "warning: openx: file descriptors: 176 connections to the SSP and their clients need 416 of one process, whose limit is 415;"
	testsupport.True(t, strings.Contains(out, warning), "no %q in\n%s", warning, out)
	if out := plan(t, "--admin", poolsOf(t, ""), "--file-descriptors", "416"); strings.Contains(out, "warning:") {
		t.Errorf("--file-descriptors does not replace the service's limit:\n%s", out)
	}
	if out := plan(t, "--admin", poolsOf(t, ""), "--ssp", "beta"); strings.Contains(out, "openx") {
		t.Errorf("--ssp beta shows openx:\n%s", out)
	}
}

func TestPlanFromAListenerThatWantsAToken(t *testing.T) {
	url := poolsOf(t, "s3cret")
	_, log, code := runHere(t, "plan", "--admin", url)
	if code != exitFailed || !strings.Contains(log, "--token-file") || strings.Contains(log, "s3cret") {
		t.Errorf("exit status %d: %s", code, log)
	}
	file := filepath.Join(t.TempDir(), "token")
	testsupport.NoError(t, os.WriteFile(file, []byte("s3cret\n"), 0o600))
	plan(t, "--admin", url, "--token-file", file)
}

func TestPlanFromAnUnknownServerIsAnError(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer page.Close()
	for _, c := range []struct{ from, want string }{
		{web.URL, "does not respond as an adbuffer's admin listener does"},
		{page.URL, "does not respond as an adbuffer's admin listener does"},
		{"http://127.0.0.1:1", "connection refused"},
		{"adbuffer:9090", "must be the URL"},
	} {
		if _, log, code := runHere(t, "plan", "--admin", c.from); code != exitFailed || !strings.Contains(log, c.want) {
			t.Errorf("--admin %s: exit status %d, %q, want %q", c.from, code, log, c.want)
		}
	}
	if _, log, code := runHere(t, "plan", "--admin", poolsOf(t, ""), "--ssp", "idle"); code != exitFailed || !strings.Contains(log, "no requests to idle") {
		t.Errorf("exit status %d: %s", code, log)
	}
	if _, log, code := runHere(t, "plan", "--admin", poolsOf(t, ""), "--ssp", "none"); code != exitFailed || !strings.Contains(log, `there is no SSP "none"`) {
		t.Errorf("exit status %d: %s", code, log)
	}
}

func TestAVariableNamesTheAdminListener(t *testing.T) {
	t.Setenv("ADBUFFER_ADMIN", poolsOf(t, ""))
	if out := plan(t); !strings.Contains(out, "openx") {
		t.Errorf("plan without flags:\n%s", out)
	}
	if out := plan(t, "--rps", "10", "--p50", "80ms", "--p99", "250ms"); strings.Contains(out, "openx") {
		t.Errorf("plan of numbers asks the running adbuffer:\n%s", out)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	file := writeFile(t, `ssps: [{name: a, endpoints: ["http://192.0.2.1/"]}]
routes: [{name: r, match: {path: "/*"}, ssps: [a]}]`)
	for _, c := range []struct {
		args []string
		code int
		asks bool
	}{
		{[]string{"check", file}, exitFailed, true},
		{[]string{"check", file, "--effective"}, exitOK, false},
		{[]string{"explain", "/x"}, exitFailed, true},
		{[]string{"explain", "--config", file, "/x"}, exitOK, false},
		{[]string{"health"}, exitFailed, true},
		{[]string{"tail"}, exitFailed, true},
		{[]string{"ssp", "list"}, exitFailed, true},
		{[]string{"reload"}, exitFailed, true},
	} {
		t.Setenv("ADBUFFER_ADMIN", other.URL)
		_, log, code := runHere(t, c.args...)
		if code != c.code || strings.Contains(log, other.URL) != c.asks {
			t.Errorf("%v: exit status %d, want %d: %s", c.args, code, c.code, log)
		}
	}
	t.Setenv("ADBUFFER_ADMIN", "http://127.0.0.1:1")
	plan(t, "--admin", poolsOf(t, "")) // the flag comes first
}

// plan from a running adbuffer uses the busiest ten seconds: a pool for the mean of a minute would refuse requests
// at peaks.
func TestPlanFromARunningAdbufferIsForThePeak(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pools":
			fmt.Fprint(w, `{"pools":[
				{"ssp":"busy","protocol":"http1","places_limit":99,"places_in_use_max":50,"need":{"arrivals_per_second":100,"hold_seconds":0.1},"limits":{"max_conns":100,"max_http2_conns":4}},
				{"ssp":"bursty","protocol":"http1","places_limit":100,"places_in_use_max":100,"need":{"arrivals_per_second":100,"hold_seconds":0.1},"limits":{"max_conns":100,"max_http2_conns":4}},
				{"ssp":"calm","protocol":"http1","places_limit":100,"places_in_use_max":20,"need":{"arrivals_per_second":100,"hold_seconds":0.1},"limits":{"max_conns":100,"max_http2_conns":4}}]}`)
		case "/history":
			// For ten seconds 1 000 requests/s were held for 100 ms, and single points were higher.
			fmt.Fprint(w, `{"step_seconds":2,"ssps":{
				"busy":{"rate":[100,1000,1000,1000,1000,1000,100,3000],"hold_ms":[100,100,100,100,100,100,100,10]},
				"calm":{"rate":[100,100,100,100,100],"hold_ms":[100,100,100,100,0]}}}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	out := plan(t, "--admin", s.URL)
	wantRow(t, out, "busy ", "1,000", "100ms", "50", "121", "100") // Erlang C of 100 places in use
	wantRow(t, out, "bursty ", "100", "100ms", "100", "120")       // 1.2 × the places in use at once
	wantRow(t, out, "calm ", "100", "100ms", "20", "24", "100")    // the last point has no hold
	for _, want := range []string{"warning: busy: This load counts requests that found no place; if", "max_conns: 121   # now 100, which is too few", "max_conns: 120   # now", "max_conns: 100   # enough: the plan needs 24"} {
		testsupport.True(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
}

// shapesOf serves /pools of SSPs with and without qps.shape.
func shapesOf(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"pools":[
			{"ssp":"openx","shape":{"state":"learning","dry_run":true,"kept":[
				{"limit":200,"share":0.1,"in_force":false,"low":0.6312,"estimate":0.7126,"high":0.7291},
				{"limit":800,"share":0.4,"in_force":true,"low":0.9049,"estimate":0.9525,"high":0.9573},
				{"limit":1600,"share":0.8,"in_force":false,"low":0.9788,"estimate":0.9954,"high":0.9972}]}},
			{"ssp":"live","shape":{"state":"paused","kept":[{"limit":2,"share":0.1,"in_force":false,"low":0,"estimate":0.25,"high":1}]}},
			{"ssp":"none"},
			{"ssp":"fresh","shape":{"state":"cold"}},
			{"ssp":"dry","shape":{"state":"cold","dry_run":true}},
			{"ssp":"idle","shape":{"state":"learning"}}]}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestPlanOfLimitsFromARunningAdbuffer(t *testing.T) {
	from := shapesOf(t)
	out := plan(t, "--shape", "--admin", from)
	tables, assumptions, _ := strings.Cut(out, "The figures are")
	testsupport.Equal(t, tables, `openx: 2,000 requests/s to 1 replica in the last ten minutes; measured in a dry run
limit    of the requests  fills kept  95 % interval   
200/s    10 %             71.3 %      63.1 to 72.9 %  
800/s    40 %             95.2 %      90.5 to 95.7 %  qps.limit
1,600/s  80 %             99.5 %      97.9 to 99.7 %  

live: 20 requests/s to 1 replica in the last ten minutes; measured while qps.shape dropped requests
limit  of the requests  fills kept  95 % interval   
2/s    10 %             25.0 %      0.0 to 100.0 %  

none: it has no qps.shape. Set qps.shape.keys to that on which the SSP's bids depend, and qps.shape.dry_run: true, which drops no more requests than now

fresh: qps.shape has seen fewer than 100 fills. Let it go on; with qps.shape.dry_run: true it learns faster, and the limit drops at random

dry: the dry run has seen fewer than 100 fills. Let it go on

idle: no requests arrived in the last ten minutes

`, "%s")
	for _, want := range []string{"does not depend on how many it gets", "up to 7 points less", "The bounds allow for that"} {
		testsupport.True(t, strings.Contains(assumptions, want), "the assumptions lack %q: %s", want, assumptions)
	}
	out = plan(t, "--shape", "--admin", from, "--ssp", "openx", "--replicas", "12")
	wantRow(t, out, "openx: 24,000 requests/s to 12 replicas")
	wantRow(t, out, "9,600/s", "40", "95.2", "90.5", "95.7", "qps.limit")
	testsupport.True(t, !strings.Contains(out, "live"), "--ssp openx shows live:\n%s", out)

	var v struct {
		SSPs []struct {
			SSP, State, Advice string
			DryRun             bool `json:"dry_run"`
			Replicas           int
			RPS                float64
			Kept               []struct {
				Limit, Share, Low, Estimate, High float64
				InForce                           bool `json:"in_force"`
			}
		}
	}
	testsupport.NoError(t, json.Unmarshal([]byte(plan(t, "--shape", "--admin", from, "--replicas", "2", "--json")), &v))
	got := fmt.Sprintf("%+v", v.SSPs)
	for _, want := range []string{
		"{SSP:openx State:learning Advice: DryRun:true Replicas:2 RPS:4000 Kept:[{Limit:400 Share:0.1 Low:0.6312 Estimate:0.7126 High:0.7291 InForce:false} {Limit:1600 ",
		" InForce:true}", "{SSP:none State:off Advice:it has no qps.shape.",
	} {
		testsupport.True(t, strings.Contains(got, want), "%s lacks %q", got, want)
	}
}

func TestPlanOfLimitsNeedsWhatWasMeasured(t *testing.T) {
	from := shapesOf(t)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "--shape needs --admin"},
		{"--rps 10 --p50 80ms --p99 250ms", exitUsage, "--shape needs --admin"},
		{"--replicas 0 --admin " + from, exitFailed, "--replicas 0: must be at least 1"},
		{"--ssp none --admin " + from, exitFailed, "nothing was measured:\nnone: it has no qps.shape. Set qps.shape.keys"},
		{"--ssp fresh --admin " + from, exitFailed, "fewer than 100 fills"},
		{"--ssp other --admin " + from, exitFailed, `there is no SSP "other"`},
		{"--admin http://127.0.0.1:1", exitFailed, "connection refused"},
	} {
		out, log, code := runHere(t, append([]string{"plan", "--shape"}, strings.Fields(c.args)...)...)
		testsupport.True(t, code == c.code && out == "" && strings.Contains(log, c.want), "plan --shape %s: exit status %d, %q, %q; want %q", c.args, code, out, log, c.want)
	}
}
