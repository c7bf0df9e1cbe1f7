package forwarding

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/testsupport"
)

// An endpoint that leads back to adbuffer would otherwise turn one request into as many as the deadline
// and max_in_flight allow.
func TestALoopIsRefusedTheFirstTimeItComesBack(t *testing.T) {
	t.Parallel()
	e := e2e.NewAuthority(t)
	for _, row := range []struct{ name, server, settings, scheme string }{
		{"HTTP/1", "", "retry: {max: 0}", "http"},
		{"HTTP/2", e.ServerSection(""), fmt.Sprintf("protocol: http2\n    tls: {ca_file: %q}", e.File("ca.pem")), "https"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			nowhere := row.server + e2e.Single(row.scheme+"://127.0.0.1:1/fillbuffer", row.settings)
			ab := e2e.Start(t, nowhere)
			ab.Take(row.server + e2e.Single(row.scheme+"://"+ab.TrafficAddr+"/fillbuffer", row.settings))
			dial := func() *e2e.Client {
				c := ab.Dial()
				if row.scheme == "https" {
					c.Conn = tls.Client(c.Conn, e.ClientConfig(nil))
					c.Reader.Reset(c.Conn)
				}
				return c
			}
			for i, method := range []string{"GET", "POST"} {
				res := dial().Do(method, "/fillbuffer?x=1", strings.Repeat("x", 10*i)).WantStatus(method, 508).WantSource("ssp/openx")
				if own := e2e.ErrorOf(res); own.Error != "loop" || !strings.Contains(own.Detail, "endpoints") {
					t.Errorf("%s: %+v", method, own)
				}
			}
			ab.WantMetric(2, "adbuffer_requests_total", "route=default", "outcome=server_error")
			ab.WantMetric(2, "adbuffer_requests_total", "route=default", "outcome=loop")
			ab.WantMetric(2, "adbuffer_ssp_requests_total", "outcome=server_error")
			ab.Take(nowhere) // adbuffer's own connections must not count as open clients
		})
	}
}

func TestASidecarBeforeAnEdgeServiceIsNoLoop(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	edge := e2e.Start(t, e2e.Single(s.URL()))
	sidecar := e2e.Start(t, e2e.Single("http://"+edge.TrafficAddr+"/fillbuffer"))
	ask := func() []string {
		t.Helper()
		sidecar.Dial().Get("/fillbuffer", "Via: 1.0 fred, 1.1 p.example (a, b)").WantStatus("through both", 200).WantSource("ssp/openx")
		return e2e.LastRequest(t, s).Values("Via")
	}
	first := ask()
	if !slices.Equal(first, []string{"1.0 fred, 1.1 p.example (a, b)", viaOf(sidecar), viaOf(edge)}) || first[1] == first[2] {
		t.Fatalf("the SSP received %q; want the client's, then one of each process", first)
	}
	edge.Take(e2e.WithMaxConns(s.URL(), 7))
	if again := ask(); again[2] != first[2] {
		t.Errorf("after a reload the process is %s, before it was %s", again[2], first[2])
	}
	// In a chain of adbuffers, eight before this one are allowed, nine are not.
	chain := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("1.1 adbuffer-%016x", i)
		}
		return "Via: " + strings.Join(names, ", ")
	}
	edge.Dial().Get("/fillbuffer", chain(8)).WantStatus("eight adbuffers before", 200)
	own := e2e.ErrorOf(edge.Dial().Get("/fillbuffer", chain(9)).WantStatus("nine adbuffers before", 508).WantSource("proxy/loop"))
	testsupport.True(t, strings.Contains(own.Detail, "9 adbuffers, and 8 are allowed"), "the error is %+v", own)
	edge.WantMetric(1, "adbuffer_requests_total", "route=default", "outcome=loop")

	edge.Take("server: {via: false}\n" + e2e.Single(s.URL()))
	if quiet := ask(); len(quiet) != 2 || quiet[1] == first[2] {
		t.Errorf("with server.via false the SSP received %q", quiet)
	}
	sidecar.Take(e2e.Single(s.URL()))
}

// viaOf is the field's value that the process adds to requests that arrive over HTTP/1.1.
func viaOf(ab *e2e.Process) string {
	fields, _ := ab.Log.Line("starting")
	return fmt.Sprint("1.1 ", fields["via"])
}
