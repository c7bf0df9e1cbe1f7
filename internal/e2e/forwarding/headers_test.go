package forwarding

import (
	"slices"
	"testing"

	"adbuffer/internal/e2e"
	"adbuffer/internal/sspsim"
)

func TestHopByHopFieldsOfRequestsAreNotForwarded(t *testing.T) {
	t.Parallel()
	s := e2e.Healthy(t)
	ab := e2e.Start(t, e2e.Single(s.URL()))
	ab.Post("/fillbuffer", "{}",
		"Connection: keep-alive, x-named, X-Other",
		"Keep-Alive: timeout=5",
		"X-Named: 1",
		"x-OTHER: 2",
		"Proxy-Connection: keep-alive",
		"Proxy-Authorization: Basic eDp5",
		"TE: trailers",
		"Trailer: X-T",
		"Upgrade: websocket",
		"Cookie: a=1",
		"Authorization: Bearer x",
		"X-Adbuffer-Anything: 1",
		"X-Kept: yes",
		"accept: */*",
	).WantFill("openx")
	want := []sspsim.Field{{Name: "Host", Value: s.Addr()}, {Name: "X-Kept", Value: "yes"}, {Name: "accept", Value: "*/*"}, {Name: "Via", Value: ab.Via()}, {Name: "Content-Length", Value: "2"}}
	if got := e2e.LastRequest(t, s).Header; !slices.Equal(got, want) {
		t.Errorf("the SSP got %v, want %v", got, want)
	}
}

func TestHopByHopFieldsOfResponsesAreNotForwarded(t *testing.T) {
	t.Parallel()
	fields := []sspsim.Field{
		{Name: "Connection", Value: "X-Named"}, {Name: "X-Named", Value: "1"}, {Name: "Keep-Alive", Value: "timeout=5"},
		{Name: "Proxy-Authenticate", Value: "Basic"}, {Name: "Trailer", Value: "X-T"}, {Name: "Upgrade", Value: "h2c"},
		{Name: "Set-Cookie", Value: "a=1"}, {Name: "Alt-Svc", Value: "h3=\":443\""}, {Name: "Strict-Transport-Security", Value: "max-age=1"},
		{Name: "Clear-Site-Data", Value: "\"cookies\""}, {Name: "X-Adbuffer-Source", Value: "ssp/forged"}, {Name: "X-Adbuffer-Other", Value: "1"},
		{Name: "Server", Value: "ssp/1"}, {Name: "ETag", Value: "\"x\""}, {Name: "x-kept", Value: "yes"},
	}
	s := e2e.SSPWith(t, sspsim.Behaviour{Response: sspsim.Response{Headers: fields}})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	a := ab.Get("/fillbuffer").WantFill("openx")
	names := func(a *e2e.Response) (names []string) {
		for _, f := range a.Fields {
			names = append(names, f.Name)
		}
		slices.Sort(names)
		return names
	}
	if got, want := names(a), []string{"Content-Length", "Content-Type", "Date", "ETag", "Server", "X-Adbuffer-Source", "X-Request-Id", "x-kept"}; !slices.Equal(got, want) {
		t.Errorf("the client got %v, want %v", got, want)
	}

	ab = e2e.Start(t, e2e.Single(s.URL(), "headers: {pass: [set-cookie, Alt-Svc, Strict-Transport-Security, Clear-Site-Data]}"))
	a = ab.Get("/fillbuffer").WantFill("openx")
	for _, name := range []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data"} {
		if a.Header(name) == "" {
			t.Errorf("%s was not forwarded although headers.pass names it: %v", name, a.Fields)
		}
	}
	if got := a.Header("X-Adbuffer-Other"); got != "" {
		t.Error("X-Adbuffer-Other crossed")
	}
}

func TestRedirectsAreForwardedAndNotFollowed(t *testing.T) {
	t.Parallel()
	s := e2e.SSPWith(t, sspsim.Behaviour{
		Response: sspsim.Response{Headers: []sspsim.Field{{Name: "Location", Value: "http://127.0.0.1:1/elsewhere"}}},
		Faults:   sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 302}},
	})
	ab := e2e.Start(t, e2e.Single(s.URL()))
	a := ab.Get("/fillbuffer").WantStatus("redirect", 302).WantSource("ssp/openx")
	if got := a.Header("Location"); got != "http://127.0.0.1:1/elsewhere" {
		t.Errorf("Location %q", got)
	}
	e2e.WantRequests(t, s, 1)
	ab.WantMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=redirect")
}
