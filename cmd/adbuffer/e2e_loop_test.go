package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/sspsim"
)

// viaOf returns what Via says in the last request that s received, one element
// for each field.
func viaOf(t testing.TB, s *sspsim.SSP) (values []string) {
	t.Helper()
	for _, f := range lastRequest(t, s).Header {
		if strings.EqualFold(f.Name, "Via") {
			values = append(values, f.Value)
		}
	}
	return values
}

// via is the field's value that the process adds to requests that came over
// HTTP/1.1.
func (ab *adbuffer) via() string {
	ab.t.Helper()
	fields, ok := ab.log.line("starting")
	name, _ := fields["via"].(string)
	if !ok || name == "" {
		ab.t.Fatal("the process does not say its name in Via")
	}
	return "1.1 " + name
}

// An endpoint that leads back to adbuffer turned one request into as many as the
// deadline and max_in_flight allow.
func TestALoopIsRefusedTheFirstTimeItComesBack(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	for _, row := range []struct{ name, server, settings, scheme string }{
		{"HTTP/1", "", "retry: {max: 0}", "http"},
		{"pipelined", "", "protocol: http1-pipelined", "http"},
		{"HTTP/2", e.server(""), fmt.Sprintf("protocol: http2\n    tls: {ca_file: %q}", e.certFile), "https"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			nowhere := row.server + single(row.scheme+"://127.0.0.1:1/fillbuffer", row.settings)
			ab := startReloadable(t, nowhere)
			ab.take(row.server + single(row.scheme+"://"+ab.traffic+"/fillbuffer", row.settings))
			c := ab.dial
			if row.scheme == "https" {
				c = func() *client { return ab.dialTLS(e.config()) }
			}
			for i, method := range []string{"GET", "POST"} {
				res := c().do(method, "/fillbuffer?x=1", strings.Repeat("x", 10*i)).wantStatus(method, 508).wantSource("ssp/openx")
				if own := ownErrorOf(res); own.Error != "loop" || !strings.Contains(own.Detail, "endpoints") {
					t.Errorf("%s: %+v", method, own)
				}
			}
			ab.wantMetric(2, "adbuffer_requests_total", "route=default", "outcome=server_error")
			ab.wantMetric(2, "adbuffer_requests_total", "route=default", "outcome=loop")
			ab.wantMetric(2, "adbuffer_ssp_requests_total", "outcome=server_error")
			ab.take(nowhere) // its own connections are no clients that are still there
		})
	}
}

func TestViaTellsThatTheClientSpokeHTTP2(t *testing.T) {
	t.Parallel()
	e, s := newEdge(t), healthy(t)
	ab := start(t, e.server("")+single(s.URL()))
	res := ask(t, e.http2(t), "GET", "https://"+ab.traffic+"/fillbuffer", "", nil)
	if want := []string{strings.Replace(ab.via(), "1.1", "2.0", 1)}; res.source != "ssp/openx" || !slices.Equal(viaOf(t, s), want) {
		t.Errorf("from %s, the SSP is told %q, want %q", res.source, viaOf(t, s), want)
	}
}

// The start logs the same warnings.
func TestCheckWarnsOfAnEndpointThatIsTheOwnListener(t *testing.T) {
	t.Parallel()
	config := writeConfig(t, "server: {listen: \":8080\"}\n"+single("http://localhost:8080/fillbuffer?key=s3cret"))
	stdout, _, code := command(t, nil, "check", "--config", config, "--quiet")
	if code != 0 || !strings.Contains(stdout, "ssps[0].endpoints[0]: leads to this adbuffer itself, at server.listen (:8080)") || strings.Contains(stdout, "s3cret") {
		t.Errorf("exit status %d: %s", code, stdout)
	}
}

func TestALoopOverTwoProcessesIsRefused(t *testing.T) {
	t.Parallel()
	nowhere := single("http://127.0.0.1:1/fillbuffer")
	a := startReloadable(t, nowhere)
	b := startReloadable(t, single("http://"+a.traffic+"/fillbuffer"))
	a.take(single("http://" + b.traffic + "/fillbuffer"))
	a.dial().get("/fillbuffer").wantStatus("through b and back to a", 508)
	a.wantMetric(1, "adbuffer_requests_total", "route=default", "outcome=loop")
	b.wantMetric(0, "adbuffer_requests_total", "route=default", "outcome=loop")
	b.wantMetric(1, "adbuffer_ssp_requests_total", "outcome=server_error")
	b.take(nowhere)
	a.take(nowhere)
}

func TestASidecarBeforeAnEdgeServiceIsNoLoop(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	edge := startReloadable(t, single(s.URL()))
	sidecar := startReloadable(t, single("http://"+edge.traffic+"/fillbuffer"))
	ask := func() []string {
		t.Helper()
		sidecar.dial().get("/fillbuffer", "Via: 1.0 fred, 1.1 p.example (a, b)").wantStatus("through both", 200).wantSource("ssp/openx")
		return viaOf(t, s)
	}
	first := ask()
	if !slices.Equal(first, []string{"1.0 fred, 1.1 p.example (a, b)", sidecar.via(), edge.via()}) || first[1] == first[2] {
		t.Fatalf("the SSP is told %q; want the client's, then one of each process", first)
	}
	edge.take(conns(s.URL(), 7))
	if again := ask(); again[2] != first[2] {
		t.Errorf("after a reload the process is %s, before it was %s", again[2], first[2])
	}
	// As a chain of nine: eight adbuffers before this one may be, nine may not.
	chain := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("1.1 adbuffer-%016x", i)
		}
		return "Via: " + strings.Join(names, ", ")
	}
	edge.dial().get("/fillbuffer", chain(8)).wantStatus("eight adbuffers before", 200)
	own := ownErrorOf(edge.dial().get("/fillbuffer", chain(9)).wantStatus("nine adbuffers before", 508).wantSource("proxy/loop"))
	if !strings.Contains(own.Detail, "9 adbuffers, and 8 are allowed") {
		t.Errorf("the error is %+v", own)
	}
	edge.wantMetric(1, "adbuffer_requests_total", "route=default", "outcome=loop")

	edge.take("server: {via: false}\n" + single(s.URL()))
	if quiet := ask(); len(quiet) != 2 || quiet[1] == first[2] {
		t.Errorf("with server.via false the SSP is told %q", quiet)
	}
	sidecar.take(single(s.URL()))
}
