package proxy_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/test/testsupport"
)

// same returns the proxy's route for another table, which gives it a new number.
func (m *modeProxy) same() *route.Route {
	rt := *m.route
	rt.Targets = slices.Clone(rt.Targets) // a new table writes into them
	return &rt
}

// another returns the proxy's route under another name and path.
func (m *modeProxy) another(name, path string) *route.Route {
	return &route.Route{Name: name, Match: route.Match{Path: path}, Mode: m.route.Mode, Targets: slices.Clone(m.route.Targets)}
}

// routesCounted returns the values of the label route.
func (m *modeProxy) routesCounted() map[string]float64 {
	m.t.Helper()
	all := make(map[string]float64)
	for _, f := range m.gather() {
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if f.GetName() == "adbuffer_requests_total" && l.GetName() == "route" {
					all[l.GetValue()] += s.GetCounter().GetValue()
				}
			}
		}
	}
	return all
}

func TestReloadChangesOptionsAndRoutesForTheNextRequest(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	post := func(path string) (int, string) { // all on one kept connection
		t.Helper()
		res, err := client.Post(m.url+path, "text/plain", strings.NewReader("0123456789"))
		testsupport.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		testsupport.NoError(t, err)
		return res.StatusCode, string(body)
	}
	if status, _ := post("/fill"); status != 200 {
		t.Fatalf("status %d", status)
	}
	o := m.options
	o.MaxBodyBytes, o.HealthPath = 9, "/healthy"
	m.p.Reload(o, route.NewTable([]*route.Route{m.same(), m.another("new", "/new")}))
	if status, body := post("/fill"); status != 413 || !strings.Contains(body, "over 9 bytes") {
		t.Errorf("%d %s, want a 413 of the new limit", status, body)
	}
	if status, _ := post("/healthy"); status != 200 {
		t.Errorf("status %d of the new health path", status)
	}
	o.MaxBodyBytes, o.ErrorDetail = 10, false
	m.p.Reload(o, route.NewTable([]*route.Route{m.another("new", "/new")}))
	if status, _ := post("/new"); status != 200 {
		t.Errorf("status %d on the new route", status)
	}
	if status, body := post("/fill"); status != 404 || !strings.HasPrefix(body, `{"error":"no_route","id":"`) || strings.Contains(body, "detail") {
		t.Errorf("%d %s on the removed route, want a 404 without detail", status, body)
	}
	o.MaxInFlight, o.MaxBufferedBytes = 1000, 12345
	m.p.Reload(o, route.NewTable(nil))
	s := m.p.Snapshot()
	testsupport.True(t, s.InFlightLimit == 1000 && s.BufferedBytesLimit == 12345, "limits %d and %d", s.InFlightLimit, s.BufferedBytesLimit)
}

func TestCountersOfAKeptRouteContinueAndThoseOfARemovedOneVanish(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.another("goes", "/goes"), m.same()}))
	m.do("GET", "/goes")
	m.do("GET", "/fill")
	m.do("GET", "/nowhere")
	m.p.Reload(m.options, route.NewTable([]*route.Route{m.same(), m.another("comes", "/comes")}))
	m.do("GET", "/fill")
	got := m.routesCounted()
	testsupport.True(t, len(got) == 3 && got["r"] == 2 && got["none"] == 1 && got["comes"] == 0, "requests by route: %v, want r 2, none 1, comes 0", got)
	testsupport.Equal(t, m.p.Snapshot().Requests, 3, "the snapshot has %d requests")
}

// A request whose route is removed meanwhile ends by the configuration that it began with. Its
// series do not come back.
func TestRequestUnderWayEndsWithTheConfigurationItBeganWith(t *testing.T) {
	received, respond := make(chan struct{}), make(chan struct{})
	m := newModeProxy(t, route.Single, nil, bidder{name: "a", handler: func(http.ResponseWriter, *http.Request) {
		close(received)
		<-respond
		panic(http.ErrAbortHandler)
	}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, body := m.do("POST", "/fill")
		m.want(res, 502, "proxy/conn_lost")
		testsupport.True(t, strings.Contains(body, `"ssp":"a"`), "body %s, want the detail that was configured when the request arrived", body)
	}()
	<-received
	o := m.options
	o.ErrorDetail, o.Access.Enabled = false, false
	m.p.Reload(o, route.NewTable([]*route.Route{m.another("other", "/other")}))
	close(respond)
	<-done
	got := m.routesCounted()
	testsupport.True(t, len(got) == 2 && got["none"] == 0 && got["other"] == 0, "requests by route: %v, want none of any", got)
	testsupport.Equal(t, m.logs.FilterMessage("request").Len(), 1, "%d lines in the access log, which was on when the request arrived")
	testsupport.Equal(t, m.p.InFlight(), 0, "%d are in flight")
}

func TestReloadLowersLimitsWithoutEndingRequestsAboveThem(t *testing.T) {
	received, respond := make(chan struct{}, 2), make(chan struct{})
	m := newModeProxy(t, route.Single, nil, bidder{name: "a", handler: func(w http.ResponseWriter, _ *http.Request) {
		received <- struct{}{}
		<-respond
		io.WriteString(w, "{}")
	}})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			res, _ := m.do("POST", "/fill", "Content-Length: 0")
			m.want(res, 200, "ssp/a")
		})
	}
	<-received
	<-received
	m.reload(func(o *proxy.Options) { o.MaxInFlight, o.MaxConnections = 1, 3 })
	res, body := m.do("GET", "/fill")
	m.want(res, 503, "proxy/overloaded")
	testsupport.True(t, strings.Contains(body, "2 of 1 requests are in flight"), "body: %s", body)
	close(respond)
	wg.Wait()
	m.await(0, openClients, "") // max_connections is 3
	res, _ = m.do("GET", "/fill")
	m.want(res, 200, "ssp/a")
	m.await(0, openClients, "")
}

// The gauge shows all connections, also those above a limit that a reload has lowered.
func TestConnectionsAboveALoweredLimitAreShown(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	for range 5 {
		m.dialInBody()
	}
	m.await(5, openClients, "")
	m.reload(func(o *proxy.Options) { o.MaxConnections = 3 })
	testsupport.Equal(t, m.series(openClients, ""), 5, "%v connections are shown")
	c := m.dialRaw()
	if res, body := c.response("GET"); res.StatusCode != 503 || !res.Close || !strings.Contains(body, "5 of 3 client connections are open; see server.max_connections") {
		t.Errorf("a connection above the limit: %d %s", res.StatusCode, body)
	}
}

func TestOnlyTheSizeOfBuffersNeedsARestart(t *testing.T) {
	m := newModeProxy(t, route.Single, nil, bids("a", "{}"))
	o := m.options
	o.MaxHeaderBytes, o.ErrorDetail = 2*o.MaxHeaderBytes, false
	o.MaxConnections, o.MaxInFlight, o.IdleTimeout = 10, 10, time.Minute
	m.p.Reload(o, route.NewTable([]*route.Route{m.same()})) // the route did not change
	res, _ := m.do("GET", "/fill", "X-Long: "+strings.Repeat("x", m.options.MaxHeaderBytes))
	m.want(res, 431, "proxy/too_large")
}
