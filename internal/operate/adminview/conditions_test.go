package adminview

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestConditionsSayWhyRequestsFail(t *testing.T) {
	p := &pool.Snapshot{Endpoints: []pool.EndpointSnapshot{
		{Endpoint: "a:80", LastDialError: "connect_failed: refused"},
		{Endpoint: "b:80", LastDialError: "connect_failed: refused", Connections: 1}, // another address works
		{Endpoint: "c:80"},
		{Endpoint: "d:443", LastDialError: "tls_failed: d:443: its certificate has expired, or is not valid yet: x509: certificate has expired", Connections: 1},
	}}
	s := &ssp.Snapshot{BreakerShedRatio: 0.9, BreakerRequests: 20, BreakerFailures: 19, BackoffSeconds: 1.5, Last4xx: 401, RefusedCoding: ssp.CodingZstd}
	since := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	lookups := []dial.FailedLookup{{Host: "a.example", Since: since, Err: errors.New("no such host"), Kept: true}}
	last := recent{map[string]uint64{"deadline": 3, "conn_lost": 7, "fill": 50, "pending_full": 4, "pending_timeout": 2}, 60, 31}
	want := []string{
		"the breaker sheds requests because the SSP fails; see breaker: 90 % of the requests are shed; of the last 20 that were sent, 19 failed, most of them as conn_lost",
		"no connection to an endpoint can be opened, a:80: connect_failed: refused",
		"adbuffer refuses the certificate of an endpoint, whose open connections stay in use until they end, d:443: tls_failed: d:443: its certificate has expired, or is not valid yet: x509: certificate has expired",
		"the name of an endpoint cannot be looked up, a.example: since 2026-01-02T03:04:05Z: no such host; the addresses of the last successful look-up stay in use",
		"requests found no place on a connection: in the last seconds 4 as pending_full, 2 as pending_timeout; see adbuffer plan --admin",
		"the SSP asked for a pause with Retry-After; see qps.limit: for 1.5 s more; see retry_after_max and retry_after_share",
		"the SSP rejects most requests: of the last 60 responses, 31 have a status of 4xx, and the last one 401; adbuffer explain shows what the SSP gets, and what is dropped",
		"the SSP refuses compressed requests; see compress.coding: it has responded to all requests in zstd with 400 or 415",
	}
	got := conditionsOf(p, s, lookups, last)
	testsupport.MustTrue(t, len(got) == len(want), "the conditions are %v", got)
	for i := range want {
		testsupport.True(t, strings.HasPrefix(got[i].String(), want[i]), "condition %d is\n%s\nwant\n%s", i, got[i], want[i])
	}
	if got := conditionsOf(&pool.Snapshot{}, &ssp.Snapshot{}, nil, recent{map[string]uint64{"fill": 9, "server_error": 9}, 18, 9}); len(got) != 0 {
		t.Errorf("a healthy SSP has the conditions %v", got)
	}
}

// Two looks without a condition do not end it, so an SSP that flaps adds few lines.
func TestConditionIsLoggedOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	var c conditionLog
	now := time.Now()
	refused := condition{conditionID{unreachable, "a:80"}, "refused"}
	other := condition{conditionID{unreachable, "b:80"}, "refused"}
	for i := range 30 {
		var all []condition
		if i < 10 && i%3 == 0 {
			all = append(all, refused)
		}
		if i == 4 {
			all = append(all, other)
		}
		c.look(zap.New(core), now.Add(time.Duration(i)*historyStep), all)
	}
	var got []string
	for _, l := range lines.All() {
		f := l.ContextMap()
		got = append(got, l.Level.String()+" "+l.Message+" "+f["endpoint"].(string))
		if lasted, ended := f["lasted"]; ended && f["endpoint"] == "a:80" && lasted != 48*time.Second {
			t.Errorf("it lasted %v, want from look 0 to look 24", lasted)
		}
	}
	want := []string{
		"warn no connection to an endpoint can be opened a:80", "warn no connection to an endpoint can be opened b:80",
		"info connections to an endpoint can be opened again b:80", "info connections to an endpoint can be opened again a:80",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A dead SSP appears in the log and in the state that explain shows, also without an access log and without a
// second endpoint.
func TestDeadSSPIsLoggedAndExplained(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testsupport.NoError(t, err)
	addr := l.Addr().String()
	l.Close()
	versions := versionsOf(t, "ssps: [{name: a, endpoints: [\"http://"+addr+"/bid\"]}]\nroutes: [{name: default, match: {path: /fillbuffer}, ssps: [a]}]\n")
	core, lines := observer.New(zap.InfoLevel)
	h := newHistories(zap.New(core))
	current := versions.Current()
	if state := h.stateOf(current.Parts[0]); len(state) != 0 {
		t.Errorf("before the first request the state is %v", state)
	}
	_, err = current.Pools[0].Acquire(&exchange.Exchange{Wanted: exchange.Wanted{Context: t.Context(), Deadline: time.Now().Add(30 * time.Second)}})
	testsupport.MustTrue(t, err != nil, "a place on a connection to a closed port")
	state := h.stateOf(current.Parts[0])
	if len(state) != 1 || !strings.HasPrefix(state[0], "endpoint "+addr+" is unreachable: connect_failed: ") || !strings.Contains(state[0], "connection refused") {
		t.Errorf("the state is %q", state)
	}
	h.look(time.Now(), current.Parts, nil)
	h.look(time.Now().Add(historyStep), current.Parts, nil)
	if all := lines.All(); len(all) != 1 || all[0].Message != "no connection to an endpoint can be opened" ||
		all[0].ContextMap()["ssp"] != "a" || all[0].ContextMap()["endpoint"] != addr || !strings.Contains(all[0].ContextMap()["why"].(string), "connection refused") {
		t.Errorf("the log has %v", all)
	}
}

func TestExplainedStateNamesOperatorsAndEjections(t *testing.T) {
	versions := versionsOf(t, oneSSP(startSSP(t), "a"))
	part := versions.Current().Parts[0]
	part.SSP.Pool().SetState(balancer.Draining)
	if state := newHistories(zap.NewNop()).stateOf(part); len(state) != 1 || state[0] != "an operator has set it to draining; see adbuffer ssp enable" {
		t.Errorf("the state is %q", state)
	}
}

func TestALimitOfTheServiceIsLoggedAtOnceAndThenOnceAMinute(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	var l limitLog
	states := []proxy.LimitState{{Setting: "server.max_in_flight", Effect: "requests are refused", Limit: 8}, {Setting: "server.max_uploads"}}
	now := time.Now()
	for i := range 100 {
		if i >= 5 && i < 40 {
			states[0].Reached += 10
			states[0].Used = 8
		}
		l.look(zap.New(core), now.Add(time.Duration(i)*historyStep), states)
	}
	var got []uint64
	for _, line := range lines.All() {
		f := line.ContextMap()
		got = append(got, f["times"].(uint64))
		if f["see"] != "server.max_in_flight" || f["effect"] != "requests are refused" || f["limit"] != int64(8) || f["used"] != int64(8) {
			t.Errorf("the line has %v", f)
		}
	}
	if want := []uint64{10, 300, 40}; !slices.Equal(got, want) {
		t.Errorf("the lines count %v, want %v", got, want)
	}
}

func TestExplainSaysThatAllPlacesAreInUse(t *testing.T) {
	versions := versionsOf(t, oneSSP(startSSP(t), "a", "pool: {max_conns: 1}"))
	v, current := New(versions, zap.NewNop()), versions.Current()
	h := v.history
	place, err := current.Pools[0].Acquire(&exchange.Exchange{Wanted: exchange.Wanted{Context: t.Context(), Deadline: time.Now().Add(30 * time.Second)}})
	testsupport.NoError(t, err)
	want := "all 1 places are in use; see pool.max_conns"
	if state := h.stateOf(current.Parts[0]); !slices.Contains(state, want) {
		t.Errorf("the state is %q, want %q", state, want)
	}
	if now := v.viewOf(current.Parts[0]).Now; !slices.Equal(now, []string{want}) {
		t.Errorf("/pools says %q, want %q", now, want)
	}
	place.Release(new(exchange.Exchange))
	if state := h.stateOf(current.Parts[0]); len(state) != 0 {
		t.Errorf("after the release, the state is %q", state)
	}
}
