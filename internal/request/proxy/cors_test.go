package proxy_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

const (
	site  = "https://www.example.com"
	other = "https://www.example.com:8443"
)

// corsFields returns the fields of a response that are about CORS, each as "Name: value", in alphabetical order.
func corsFields(res *http.Response) string {
	var all []string
	for name, values := range res.Header {
		if name == "Vary" || strings.HasPrefix(name, "Access-Control-") {
			for _, v := range values {
				all = append(all, strings.TrimPrefix(name, "Access-Control-")+": "+v)
			}
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// A script of an allowed page can read each response that adbuffer makes, and an SSP's own fields are neither doubled
// nor replaced.
func TestScriptsOfAllowedPagesCanReadResponses(t *testing.T) {
	open := bidder{name: "open", handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://ssp.example")
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Header().Set("Vary", "Origin")
		w.Write([]byte("{}"))
	}}
	half := bidder{name: "half", handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		w.Write([]byte("{}"))
	}}
	cases := []struct {
		name   string
		cors   route.CORS
		mode   route.Mode
		target string
		origin string // "" = no field
		status int
		want   string
	}{
		{"merged", route.CORS{Origins: []string{site}}, route.ParallelAll, "", site, 200, "Allow-Origin: " + site + ", Vary: Origin"},
		{"merged, with credentials", route.CORS{Origins: []string{"http://a.example", site}, Credentials: true}, route.ParallelAll, "", site, 200, "Allow-Credentials: true, Allow-Origin: " + site + ", Vary: Origin"},
		{"merged, for all", route.CORS{Origins: []string{"*"}}, route.ParallelAll, "", "null", 200, "Allow-Origin: *"},
		{"another port", route.CORS{Origins: []string{site}, Credentials: true}, route.ParallelAll, "", other, 200, "Vary: Origin"},
		{"a prefix", route.CORS{Origins: []string{other}}, route.ParallelAll, "", site, 200, "Vary: Origin"},
		{"another case", route.CORS{Origins: []string{site}}, route.ParallelAll, "", "https://WWW.example.com", 200, "Vary: Origin"},
		{"null is not listed", route.CORS{Origins: []string{site}}, route.ParallelAll, "", "null", 200, "Vary: Origin"},
		{"null is listed", route.CORS{Origins: []string{"null"}}, route.ParallelAll, "", "null", 200, "Allow-Origin: null, Vary: Origin"},
		{"no page", route.CORS{Origins: []string{site}}, route.ParallelAll, "", "", 200, "Vary: Origin"},
		{"no key", route.CORS{}, route.ParallelAll, "", site, 200, ""},
		{"an SSP's response without fields", route.CORS{Origins: []string{site}}, route.Single, "/plain", site, 200, "Allow-Origin: " + site + ", Vary: Origin"},
		{"an SSP's response with fields", route.CORS{Origins: []string{site}, Credentials: true}, route.Single, "/open", site, 200, "Allow-Credentials: true, Allow-Origin: https://ssp.example, Vary: Origin"},
		{"an SSP's response with half of them", route.CORS{Origins: []string{site}, Credentials: true}, route.Single, "/half", site, 200, "Allow-Credentials: true, Allow-Origin: " + site + ", Vary: Origin"},
		{"half of them, without credentials", route.CORS{Origins: []string{site}}, route.Single, "/half", site, 200, "Allow-Origin: " + site + ", Vary: Origin"},
		{"half of them for null", route.CORS{Origins: []string{"null"}}, route.Single, "/half", "null", 200, "Allow-Origin: null, Vary: Origin"},
		{"half of them for all origins", route.CORS{Origins: []string{"*"}}, route.Single, "/half", site, 200, "Allow-Origin: *"},
		{"a no-bid", route.CORS{Origins: []string{site}}, route.Waterfall, "/none", site, 204, "Allow-Origin: " + site + ", Vary: Origin"},
		{"no ad", route.CORS{Origins: []string{site}}, route.Single, "/fails", site, 204, "Allow-Origin: " + site + ", Vary: Origin"},
		{"an error", route.CORS{Origins: []string{site}}, route.Single, "/unknown", site, 404, "Allow-Origin: " + site + ", Vary: Origin"},
		{"a panic", route.CORS{Origins: []string{site}}, route.Single, "/broken", site, 500, "Allow-Origin: " + site + ", Vary: Origin"},
		{"no route", route.CORS{Origins: []string{site}}, route.Single, "/none/here", site, 404, ""},
	}
	m := newModeProxy(t, route.Single, overTLS, bids("plain", "{}"), open, half, respondsWith("none", 204), respondsWith("fails", 503),
		bidder{name: "broken", handler: http.NotFound, broken: true})
	var table []*route.Route
	for i, c := range cases {
		rt := m.another(fmt.Sprint("r", i), fmt.Sprint("/", i))
		rt.Mode, rt.CORS, rt.ClientChoice, rt.NoAdOnError, rt.Masked = c.mode, c.cors, true, true, route.Statuses{"5xx"}
		table = append(table, rt)
	}
	m.p.Reload(m.options, route.NewTable(table))
	for _, http2 := range []bool{false, true} {
		client := m.client(http2)
		for i, c := range cases {
			var fields []string
			if c.origin != "" {
				fields = append(fields, "Origin: "+c.origin)
			}
			res, _ := m.ask(client, "POST", fmt.Sprint("/", i, c.target), "{}", fields...)
			if got := corsFields(res); res.StatusCode != c.status || got != c.want {
				t.Errorf("%s, HTTP/2 %v: %d, %s; want %d, %s", c.name, http2, res.StatusCode, got, c.status, c.want)
			}
		}
	}
}

// adbuffer responds to preflights itself, also for a route with conditions that a preflight cannot meet, and counts
// them apart from requests for an ad.
func TestPreflights(t *testing.T) {
	m := newModeProxy(t, route.ParallelAll, func(o *proxy.Options, rt *route.Route) {
		overTLS(o, rt)
		rt.CORS = route.CORS{Origins: []string{site}, Credentials: true}
		rt.Match.Header = []route.Condition{{Name: "X-Bid"}}
	}, bids("a", "{}"))
	all := m.another("all", "/all/*")
	all.Mode, all.CORS = route.Single, route.CORS{Origins: []string{"*"}}
	second := m.another("second", "/fill")
	second.CORS = route.CORS{Origins: []string{other}}
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.same(), m.another("closed", "/closed"), all, second}))
	const asked, max = "Access-Control-Request-Headers: x-bid,content-type", ", Max-Age: 7200"
	allowed := func(credentials, names, methods, origin string) string {
		return credentials + names + "Allow-Methods: " + methods + ", Allow-Origin: " + origin + max
	}
	clients := map[bool]*http.Client{false: m.client(false), true: m.client(true)}
	for _, c := range []struct {
		target string
		fields []string
		status int
		want   string
	}{
		{"/fill?x=1", []string{"Origin: " + site, "Access-Control-Request-Method: POST", asked}, 204,
			allowed("Allow-Credentials: true, ", "Allow-Headers: x-bid,content-type, ", "GET, POST", site) + ", Vary: Origin"},
		{"/fill/a", []string{"Origin: " + site, "Access-Control-Request-Method: POST"}, 204, allowed("Allow-Credentials: true, ", "", "GET, POST", site) + ", Vary: Origin"},
		{"/fill", []string{"Origin: " + other, asked}, 204, allowed("", "Allow-Headers: x-bid,content-type, ", "GET, POST", other) + ", Vary: Origin"},
		{"/fill", []string{"Origin: https://evil.example", asked}, 204, "Vary: Origin"},
		{"/fill", []string{asked}, 204, "Vary: Origin"},
		{"/all/x", []string{"Origin: null"}, 204, allowed("", "", "GET, HEAD, POST", "*")},
		{"/closed", []string{"Origin: " + site}, 405, ""},
		{"/fill/../fill", []string{"Origin: " + site}, 405, ""},
	} {
		for http2, client := range clients {
			res, body := m.ask(client, "OPTIONS", c.target, "", c.fields...)
			if got := corsFields(res); res.StatusCode != c.status || got != c.want || c.status == 204 && (body != "" || res.Header.Get("X-Request-Id") == "") {
				t.Errorf("%s, %q, HTTP/2 %v: %d, %s, %s; want %d, %s", c.target, c.fields, http2, res.StatusCode, got, body, c.status, c.want)
			}
		}
	}
	for name, n := range m.p.Snapshot().Outcomes {
		if want := uint64(map[string]int{"method_not_allowed": 4}[name]); n != want {
			t.Errorf("%d requests ended as %s, want %d", n, name, want)
		}
	}
	for name, want := range map[string]float64{"r": 8, "all": 2, "second": 2} { // over both protocols
		testsupport.Equal(t, m.seriesOf("adbuffer_requests_total", "preflight", name), want, "%v preflights of route %s", name)
	}
	testsupport.Equal(t, strings.Count(fmt.Sprint(m.gather()), `"preflight"`), 3, "%d series of preflights, one for each route with CORS")
	rows := m.p.Routes()
	testsupport.True(t, rows[0].Preflights == 8 && len(rows[0].Outcomes) == 0, "the first route has %+v", rows[0])
	res, _ := m.ask(clients[false], "OPTIONS", "/fill", "a body", "Origin: "+site) // its connection stays usable
	testsupport.Equal(t, res.StatusCode, 204, "a preflight with a body: %d")
	testsupport.Equal(t, fmt.Sprint(res.Close), "false", "a preflight with a body closes its connection: %s")
	for field, want := range map[string]string{
		"Origin: " + site + "\r\n":         "; cors.origins of route r contains the request's Origin",
		"Origin: https://evil.example\r\n": "; cors.origins of route r does not contain the request's Origin, so browsers send no request",
		"":                                 "; the request has no Origin",
	} {
		e := m.p.Explain([]byte("OPTIONS /fill HTTP/1.1\r\nHost: a\r\n"+field+"\r\n"), netip.Addr{}, func(string) string { return "h" })
		testsupport.True(t, e.Refusal != nil && e.Refusal.Status == 204 && strings.HasSuffix(e.Refusal.Detail, want), "%q is explained as %+v", field, e.Refusal)
	}
}
