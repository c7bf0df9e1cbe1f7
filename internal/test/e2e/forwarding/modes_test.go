package forwarding

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/e2e"
	"adbuffer/internal/test/sspsim"
	"adbuffer/internal/test/testsupport"
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

func TestParallelFirstForwardsTheFirstFillAndAbandonsTheOtherLegs(t *testing.T) {
	t.Parallel()
	// a has no bid, b fills when a's leg has ended and c has its request, c never responds. So
	// adbuffer abandons an exchange, not a dial.
	a, b, c := noBid(t), e2e.StartGated(t, sspsim.Options{}), e2e.Failing(t, sspsim.Faults{Stall: sspsim.Always})
	ab := three(t, "mode: parallel-first, ssps: [a, b, c]", a, b.SSP, c)
	conn := ab.Dial()
	body := bidRequest(t)
	conn.Send(e2e.Request("POST", "/fillbuffer", body))
	ab.AwaitMetric(1, "adbuffer_ssp_requests_total", "ssp=a", "outcome=no_bid")
	e2e.AwaitInFlight(t, c, 1)
	opened := time.Now()
	b.Open()
	conn.Read("POST").WantFill("b")
	testsupport.AtMost(t, time.Since(opened), 15*time.Second, "response after %v: adbuffer waited for the stalled SSP")
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
	e := envelopeOf(t, conn.Post("/fillbuffer", `{"id":"x"}`, "Accept-Encoding: gzip"))
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

}

// envelope is the response of parallel-all.
type envelope struct {
	Results []struct {
		SSP         string          `json:"ssp"`
		Status      int             `json:"status"`
		MS          *int            `json:"ms"`
		ContentType string          `json:"content_type"`
		Body        json.RawMessage `json:"body"`
		Base64      string          `json:"body_base64"`
		Error       string          `json:"error"`
	} `json:"results"`
}

func envelopeOf(t *testing.T, a *e2e.Response) (e envelope) {
	t.Helper()
	a.WantStatus("parallel-all", 200).WantSource("proxy/merged")
	testsupport.Equal(t, a.Header("Content-Type"), "application/json", "Content-Type %q")
	d := json.NewDecoder(strings.NewReader(a.Body))
	d.DisallowUnknownFields()
	testsupport.NoError(t, d.Decode(&e))
	return e
}
