package forwarding

import (
	"fmt"
	"testing"
	"time"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
	"adbuffer/internal/testsupport"
)

// three runs adbuffer with the SSPs a, b and c on one route with this mode.
func three(t *testing.T, mode string, a, b, c *sspsim.SSP) *e2e.Process {
	t.Helper()
	return e2e.Start(t, fmt.Sprintf(`
ssps:
  - {name: a, endpoints: [%q]}
  - {name: b, endpoints: [%q]}
  - {name: c, endpoints: [%q]}
routes:
  - {name: default, match: {path: /fillbuffer}, %s, client_choice: true}
`, a.URL(), b.URL(), c.URL(), mode))
}

func noBid(t testing.TB) *sspsim.SSP {
	t.Helper()
	return e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{NoBid: sspsim.Always}})
}

func respondingWith(t testing.TB, status int) *sspsim.SSP {
	t.Helper()
	return e2e.Failing(t, sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: status}})
}

func slowly(t testing.TB, latency time.Duration) *sspsim.SSP {
	t.Helper()
	return e2e.SSPWith(t, sspsim.Behaviour{Latency: sspsim.Constant(latency)})
}

func TestWaterfallTriesSSPsInOrderUntilOneFills(t *testing.T) {
	t.Parallel()
	stalled := e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	for _, row := range []struct {
		name string
		a, b *sspsim.SSP
	}{
		{"no_bid and 500", noBid(t), respondingWith(t, 500)},
		{"refused and reset", e2e.Failing(t, sspsim.Faults{Refuse: true}), e2e.Failing(t, sspsim.Faults{Reset: sspsim.Always})},
		{"400 and a tier that is too slow", respondingWith(t, 400), stalled},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := e2e.Healthy(t)
			ab := three(t, "mode: waterfall, ssps: [a, {name: b, timeout: 100ms}, c]", row.a, row.b, c)
			conn := ab.Dial()
			conn.Get("/fillbuffer").WantFill("c")
			conn.Post("/fillbuffer", `{"id":"1"}`).WantFill("c")
			e2e.WantRequests(t, c, 2)
			ab.WantMetric(2, "adbuffer_requests_total", "route=default", "outcome=fill")
			conn.Get("/fillbuffer?ssp=c").WantFill("c") // a choice changes the mode to single
		})
	}
}

// Without a fill, the client gets 204 if any SSP responded with a no-bid. Otherwise it gets the
// first response in route order, or the first SSP's error.
func TestWithoutAFillTheBestOtherResponseIsForwarded(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"waterfall", "parallel-first"} {
		for _, row := range []struct {
			name    string
			a, b, c sspsim.Behaviour
			status  int
			source  string
		}{
			{"a no_bid among errors", withStatus(500), noBids(), withStatus(400), 204, "ssp/b"},
			{"responds alone", refusing(), withStatus(503), withStatus(400), 503, "ssp/b"},
			{"a redirect", withStatus(302), withStatus(503), refusing(), 302, "ssp/a"},
			{"no response", resetting(), refusing(), refusing(), 502, "proxy/conn_lost"},
		} {
			t.Run(mode+", "+row.name, func(t *testing.T) {
				t.Parallel()
				a, b, c := e2e.SSPWith(t, row.a), e2e.SSPWith(t, row.b), e2e.SSPWith(t, row.c)
				ab := three(t, "mode: "+mode+", ssps: [a, b, c]", a, b, c)
				ab.Post("/fillbuffer", `{"id":"1"}`).WantStatus(row.name, row.status).WantSource(row.source)
			})
		}
	}
}

func withStatus(code int) sspsim.Behaviour {
	return sspsim.Behaviour{Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: code}}}
}
func noBids() sspsim.Behaviour {
	return sspsim.Behaviour{Response: sspsim.Response{NoBid: sspsim.Always}}
}
func refusing() sspsim.Behaviour { return sspsim.Behaviour{Faults: sspsim.Faults{Refuse: true}} }
func resetting() sspsim.Behaviour {
	return sspsim.Behaviour{Faults: sspsim.Faults{Reset: sspsim.Always}}
}

func TestParallelFirstForwardsTheFirstFillAndAbandonsTheOtherLegs(t *testing.T) {
	t.Parallel()
	// a has no bid, b fills when a's leg has ended and c has its request, c never responds. So
	// adbuffer abandons an exchange, not a dial.
	a, b, c := noBid(t), e2e.StartGated(t, sspsim.Options{}), e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := three(t, "mode: parallel-first, ssps: [a, b, c]", a, b.SSP, c)
	conn := ab.Dial()
	body := e2e.BidRequest()
	conn.Send(e2e.Request("POST", "/fillbuffer", body))
	ab.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=a", "outcome=no_bid")
	e2e.AwaitInFlight(t, c, 1)
	b.Open()
	got := conn.Read("POST").WantFill("b")
	testsupport.AtMost(t, got.Took, 15*time.Second, "response after %v: adbuffer waited for the stalled SSP")
	for _, s := range []*sspsim.SSP{a, c} {
		testsupport.Equal(t, s.Counters().Requests, 1, "an SSP received %d requests")
		if r := e2e.LastRequest(t, s); string(r.Body) != body {
			t.Errorf("the SSP got the body %q", r.Body)
		}
	}
	ab.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=c", "outcome=cancelled")
	ab.WantMetric(1, "adbuffer_requests_total", "route=default", "outcome=fill")
	// The abandoned connection is closed after its linger.
	ab.AwaitMetric(0, "adbuffer_pool_places_in_use", "ssp=c")
	ab.AwaitMetric(1, "adbuffer_pool_connections_closed_total", "ssp=c", "reason=timeout")
}

func TestParallelAllRespondsWithEachSSPsResponse(t *testing.T) {
	t.Parallel()
	a, b := slowly(t, 30*time.Millisecond), noBid(t)
	c := e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := three(t, "mode: parallel-all, ssps: [a, b, {name: c, secondary: true}]", a, b, c)
	conn := ab.Dial()
	e := e2e.EnvelopeOf(conn.Post("/fillbuffer", `{"id":"x"}`, "Accept-Encoding: gzip"))
	testsupport.MustEqual(t, len(e.Results), 3, "%d results")
	ra, rb, rc := e.Results[0], e.Results[1], e.Results[2]
	if ra.SSP != "a" || ra.Status != 200 || ra.MS == nil || *ra.MS < 30 || ra.ContentType != "application/json" ||
		string(ra.Body) != `{"id":"x","seatbid":[{"bid":[{"id":"1","impid":"1","price":1.25,"adm":""}],"seat":"sim"}],"cur":"USD"}` {
		t.Errorf("a: %+v %s", ra, ra.Body)
	}
	testsupport.True(t, rb.SSP == "b" && rb.Status == 204 && rb.MS != nil && rb.Body == nil && rb.Error == "", "b: %+v", rb)
	testsupport.True(t, rc.SSP == "c" && rc.Error == "not_waited" && rc.Status == 0 && rc.MS == nil, "c: %+v", rc)
	if got := e2e.LastRequest(t, a).Values("Accept-Encoding"); len(got) != 1 || got[0] != "identity" {
		t.Errorf("a got Accept-Encoding %q, want identity", got)
	}
	ab.WantMetric(1, "adbuffer_requests_total", "route=default", "outcome=merged")
	ab.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=c", "outcome=cancelled")

	want := e2e.Refusal{Status: 405, Reason: "method_not_allowed"}
	if allow := ab.WantRefusal("HEAD", want, func() *e2e.Response { return headBody(conn.Do("HEAD", "/fillbuffer", "")) }).Header("Allow"); allow != "GET, POST" {
		t.Errorf("Allow: %q", allow)
	}
}

// headBody gives a response to HEAD the body that it lacks.
func headBody(a *e2e.Response) *e2e.Response {
	a.Body = `{"error":"method_not_allowed","detail":"use GET or POST; see the runbook, entry method_not_allowed"}`
	return a
}
