package adminview

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/machine/overload"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/test/testsupport"
)

func TestEachNoticeHasItsRule(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	since := now.Add(-time.Minute)
	certificate := func(expiry time.Time) facts {
		return facts{Facts: Facts{Certificates: []Certificate{{"server.tls.cert_file", "clients", expiry}}}}
	}
	tested := make(map[string]bool)
	for _, test := range []struct {
		name string
		f    facts
		want []string // the kind and the text of each notice
	}{
		{"nothing", facts{}, nil},
		{"draining", facts{Facts: Facts{Draining: true}}, []string{"draining: adbuffer drains: it takes no new connections, and ends once its requests have ended."}},
		{"reload refused", facts{failed: &reload.FailedReload{At: since, Err: errors.New("no file")}},
			[]string{"reload_refused: The configuration in force differs from its file: the reload at 2026-11-28T11:59:00Z was refused. no file"}},
		{"reload refused for two errors", facts{failed: &reload.FailedReload{At: since, Err: config.Errors{{Path: "ssps", Value: "7", Rule: "must be a list"}, {Path: "routes", Value: "none", Rule: "must be set"}}}},
			[]string{"reload_refused: The configuration in force differs from its file: the reload at 2026-11-28T11:59:00Z was refused. ssps: 7: must be a list (+1 more)"}},
		{"overload", facts{overload: overload.State{Overloaded: true, Since: &since, LagMs: 12}},
			[]string{"overload: adbuffer has been overloaded since 2026-11-28T11:59:00Z: requests wait 12 ms for CPU, and it refuses some of them; see server.overload."}},
		{"overload in a dry run", facts{overload: overload.State{Overloaded: true, Since: &since, LagMs: 12, DryRun: true}},
			[]string{"overload: adbuffer has been overloaded since 2026-11-28T11:59:00Z: requests wait 12 ms for CPU, and without dry_run, it would refuse some of them; see server.overload."}},
		{"SSPs that reject", facts{rejecting: []string{"a", "b", "c", "d", "e", "f"}},
			[]string{"ssp_rejects: SSPs that reject most requests by a status of 4xx: a, b, c, d, e (+1 more). adbuffer explain shows what they get, and what is dropped."}},
		{"no route", facts{Facts: Facts{Unrouted: []proxy.PathCount{{Path: "/fillbufer", Count: 9}, {Path: "/x", Count: 2}}}, unrouted: 11, requests: 1000},
			[]string{"no_route: 11 of 1000 requests of the last minute match no route. Most of them ask for /fillbufer (9), /x (2); see routes[].match."}},
		{"one of a hundred without a route", facts{unrouted: 10, requests: 1000}, nil},
		{"few requests", facts{unrouted: 19, requests: 19}, nil},
		{"limits", facts{limits: []proxy.LimitState{
			{Setting: "server.overload.target", Effect: "overload has a notice of its own"},
			{Setting: "server.max_in_flight", Effect: "requests are refused", Used: 7, Limit: 8},
			{Setting: "server.max_connections", Effect: "connections are refused", Used: 1, Limit: 2},
		}}, []string{
			"limit_reached: A limit was reached within the last 30 seconds: requests are refused. See server.max_in_flight; 7 of 8 are in use.",
			"limit_reached: A limit was reached within the last 30 seconds: connections are refused. See server.max_connections; 1 of 2 are in use.",
		}},
		{"no reuse", facts{reuse: "412 client connections ended."}, []string{"no_reuse: 412 client connections ended."}},
		{"expired certificate", certificate(since), []string{"certificate: The certificate of server.tls.cert_file expired at 2026-11-28T11:59:00Z: clients refuse it."}},
		{"certificate about to expire", certificate(now.Add(13 * 24 * time.Hour)),
			[]string{"certificate: The certificate of server.tls.cert_file expires at 2026-12-11T12:00:00Z; from then on clients refuse it."}},
		{"valid certificate", certificate(now.Add(14 * 24 * time.Hour)), nil},
		{"Redis", facts{withoutRedis: []string{"a (33.333/s)", "b (1000/s)"}},
			[]string{"redis_away: Redis is away: adbuffer sends these SSPs at most its last share of qps.limit: a (33.333/s), b (1000/s). SSPs get more than the limit if other replicas reach Redis; see fleet.redis."}},
		{"lost lines", facts{Facts: Facts{LinesLost: 12}, losesLines: true},
			[]string{"log_lines_lost: Log lines are lost, 12 since start: standard error is blocked or fails. Is the disk of the log full, or its reader too slow?"}},
		{"lost lines of earlier", facts{Facts: Facts{LinesLost: 12}}, nil},
	} {
		test.f.now = now
		var got []string
		for _, n := range noticesOf(&test.f) {
			got = append(got, n.Kind+": "+n.Text)
			tested[n.Kind] = true
		}
		testsupport.Equal(t, strings.Join(got, "\n"), strings.Join(test.want, "\n"), test.name+": the notices are\n%s")
	}
	for _, rule := range noticeRules {
		testsupport.True(t, tested[rule.kind], "the rule %s has no test", rule.kind)
	}
}

// Looks are two seconds apart. The incidents begin with look 40 and end with look 60.
func TestNoticesOfEventsComeWithTheNextLookAndGoWithinAMinute(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	v := New(versionsOf(t, oneSSP(startSSP(t), "a")), zap.New(core))
	latency, none := metrics.Durations(time.Millisecond, time.Second), metrics.Durations(time.Millisecond, time.Second)
	limits := []proxy.LimitState{{Setting: "server.max_in_flight", Effect: "requests are refused"}}
	var lost, fills, unrouted uint64
	first, last := make(map[string]int), make(map[string]int)
	now := time.Now()
	for i := range 130 {
		if fills += 95; i >= 40 && i < 60 {
			unrouted += 5
			limits[0].Reached++
			lost++
		}
		now = now.Add(historyStep)
		routes := []proxy.RouteCounts{
			{Name: "r", Outcomes: map[string]uint64{"fill": fills}, Latency: latency},
			{Name: "none", Outcomes: map[string]uint64{"no_route": unrouted}, Latency: none},
		}
		v.history.look(now, nil, routes)
		v.events.look(now, limits, lost, routes)
		known := Facts{LinesLost: lost, Unrouted: []proxy.PathCount{{Path: "/typo", Count: 5}}}
		f := v.factsOf(known, limits, proxy.Snapshot{}, v.routeRows(routes), now)
		v.events.logUnrouted(zap.New(core), f)
		for _, n := range noticesOf(f) {
			if first[n.Kind] == 0 {
				first[n.Kind] = i
			}
			last[n.Kind] = i
		}
	}
	// 1 % of the requests of a minute have no route ten seconds after the first look with 5 %.
	testsupport.Equal(t, fmt.Sprint(first), "map[limit_reached:40 log_lines_lost:40 no_route:45]", "the notices come with looks %s")
	testsupport.Equal(t, fmt.Sprint(last), "map[limit_reached:73 log_lines_lost:73 no_route:73]", "the notices go after looks %s")
	logged := lines.FilterMessage("requests match no route; see routes[].match").All()
	testsupport.MustTrue(t, len(logged) >= 1, "nothing is logged")
	testsupport.Equal(t, fmt.Sprint(logged[0].ContextMap()["paths"]), "[/typo (5)]", "the line has the paths %s")
}
