package main

import (
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/sspsim"
)

func TestHopByHopFieldsOfRequestsEndHere(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL()))
	ab.post("/fillbuffer", "{}",
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
	).wantFill("openx")
	want := []sspsim.Field{{Name: "Host", Value: s.Addr()}, {Name: "X-Kept", Value: "yes"}, {Name: "accept", Value: "*/*"}, {Name: "Via", Value: ab.via()}, {Name: "Content-Length", Value: "2"}}
	if got := lastRequest(t, s).Header; !slices.Equal(got, want) {
		t.Errorf("the SSP was sent %v, want %v", got, want)
	}
}

func TestHopByHopFieldsOfAnswersEndHere(t *testing.T) {
	t.Parallel()
	fields := []sspsim.Field{
		{Name: "Connection", Value: "X-Named"}, {Name: "X-Named", Value: "1"}, {Name: "Keep-Alive", Value: "timeout=5"},
		{Name: "Proxy-Authenticate", Value: "Basic"}, {Name: "Trailer", Value: "X-T"}, {Name: "Upgrade", Value: "h2c"},
		{Name: "Set-Cookie", Value: "a=1"}, {Name: "Alt-Svc", Value: "h3=\":443\""}, {Name: "Strict-Transport-Security", Value: "max-age=1"},
		{Name: "Clear-Site-Data", Value: "\"cookies\""}, {Name: "X-Adbuffer-Source", Value: "ssp/forged"}, {Name: "X-Adbuffer-Other", Value: "1"},
		{Name: "Server", Value: "ssp/1"}, {Name: "ETag", Value: "\"x\""}, {Name: "x-kept", Value: "yes"},
	}
	s := sspWith(t, sspsim.Behaviour{Answer: sspsim.Answer{Headers: fields}})
	ab := start(t, single(s.URL()))
	a := ab.get("/fillbuffer").wantFill("openx")
	names := func(a *answer) (names []string) {
		for _, f := range a.fields {
			names = append(names, f.name)
		}
		slices.Sort(names)
		return names
	}
	if got, want := names(a), []string{"Content-Length", "Content-Type", "Date", "ETag", "Server", "X-Adbuffer-Source", "x-kept"}; !slices.Equal(got, want) {
		t.Errorf("the client was sent %v, want %v", got, want)
	}

	ab = start(t, single(s.URL(), "headers: {pass: [set-cookie, Alt-Svc, Strict-Transport-Security, Clear-Site-Data]}"))
	a = ab.get("/fillbuffer").wantFill("openx")
	for _, name := range []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data"} {
		if a.header(name) == "" {
			t.Errorf("%s was not passed although headers.pass names it: %v", name, a.fields)
		}
	}
	if got := a.header("X-Adbuffer-Other"); got != "" {
		t.Error("X-Adbuffer-Other crossed")
	}
}

func TestSetCookieCrossesUnchangedWherePassed(t *testing.T) {
	t.Parallel()
	s := sspWith(t, sspsim.Behaviour{Answer: sspsim.Answer{Cookies: sspsim.Always}})
	ab := start(t, single(s.URL(), "headers: {pass: [Set-Cookie, Cookie, Authorization]}"))
	a := ab.get("/fillbuffer", "Cookie: a=1; b=2", "Authorization: Bearer x").wantFill("openx")
	var cookies []string
	for _, f := range a.fields {
		if strings.EqualFold(f.name, "Set-Cookie") {
			cookies = append(cookies, f.value)
		}
	}
	want := []string{"sim_uid=1; Path=/; Max-Age=3600", "sim_sid=2; Path=/; HttpOnly"}
	if slices.Sort(cookies); !slices.Equal(cookies, []string{want[1], want[0]}) {
		t.Errorf("cookies %q, want %q", cookies, want)
	}
	if got := lastRequest(t, s); got.Get("Cookie") != "a=1; b=2" || got.Get("Authorization") != "Bearer x" {
		t.Errorf("the SSP was sent %v", got.Header)
	}
}

func TestFieldsAreRemovedAndSetForAnSSP(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	ab := start(t, single(s.URL(), "host: ads.partner.example:8443",
		`headers: {remove: [X-Internal, user-agent], set: [{name: X-Openrtb-Version, value: "2.6"}, {name: X-Empty, value: ""}]}`))
	ab.get("/fillbuffer", "x-internal: 1", "X_Internal: 2", "User-Agent: u", "x-openrtb-version: 2.5", "x_openrtb_version: 2.4", "Accept: a/b").wantFill("openx")
	want := []sspsim.Field{{Name: "Host", Value: "ads.partner.example:8443"}, {Name: "Accept", Value: "a/b"}, {Name: "Via", Value: ab.via()}, {Name: "X-Openrtb-Version", Value: "2.6"}, {Name: "X-Empty", Value: ""}}
	if got := lastRequest(t, s).Header; !slices.Equal(got, want) {
		t.Errorf("the SSP was sent %v, want %v", got, want)
	}
}

func TestRedirectsArePassedOnAndNotFollowed(t *testing.T) {
	t.Parallel()
	s := sspWith(t, sspsim.Behaviour{
		Answer: sspsim.Answer{Headers: []sspsim.Field{{Name: "Location", Value: "http://127.0.0.1:1/elsewhere"}}},
		Faults: sspsim.Faults{Status: sspsim.Status{Chance: sspsim.Always, Code: 302}},
	})
	ab := start(t, single(s.URL()))
	a := ab.get("/fillbuffer").wantStatus("redirect", 302).wantSource("ssp/openx")
	if got := a.header("Location"); got != "http://127.0.0.1:1/elsewhere" {
		t.Errorf("Location %q", got)
	}
	wantAsked(t, s, 1)
	ab.wantMetric(1, "adbuffer_ssp_requests_total", "ssp=openx", "outcome=redirect")
}
