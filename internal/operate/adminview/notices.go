package adminview

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/wire/exchange"
)

// Notice says what is wrong with the whole service now.
type Notice struct {
	Kind string `json:"kind"` // the kind of the rule in noticeRules that made the notice
	Text string `json:"text"`
}

// Facts are the facts for notices that package adminview cannot find out itself.
type Facts struct {
	Draining     bool
	LinesLost    uint64 // log lines that could not be written, since start
	Certificates []Certificate
	Unrouted     []proxy.PathCount // the commonest paths of requests without a route
}

// Certificate is a certificate of adbuffer.
type Certificate struct {
	Setting string // the setting that names the certificate's file
	Peers   string // the clients or servers that would refuse it
	Expiry  time.Time
}

// UnroutedPaths is how many paths a notice names.
const UnroutedPaths = 3

// facts holds all facts for notices, as they are at the moment now.
type facts struct {
	Facts
	now          time.Time
	failed       *reload.FailedReload
	overload     overload.State
	limits       []proxy.LimitState // limits that were reached in the last seconds
	losesLines   bool               // log lines were lost in the last seconds
	unrouted     uint64             // requests of the last minute without a route; 0 if there were none in the last seconds
	requests     uint64             // requests of the last minute
	rejecting    []string           // the SSPs that reject most requests
	withoutRedis []string           // the SSPs whose limit this replica cannot share while Redis is away, with the replica's last share
	reuse        string             // reuse.notice
}

// noticeRules are the rules, the most urgent one first.
var noticeRules = []struct {
	kind  string
	texts func(f *facts) []string
}{
	{"draining", drainingNotice},
	{"reload_refused", reloadNotice},
	{"overload", overloadNotice},
	{"ssp_rejects", rejectNotice},
	{"no_route", noRouteNotice},
	{"limit_reached", limitNotices},
	{"no_reuse", reuseNotice},
	{"certificate", certificateNotices},
	{"redis_away", redisNotice},
	{"log_lines_lost", logNotice},
}

func noticesOf(f *facts) []Notice {
	all := []Notice{}
	for _, rule := range noticeRules {
		for _, text := range rule.texts(f) {
			all = append(all, Notice{rule.kind, text})
		}
	}
	return all
}

func drainingNotice(f *facts) []string {
	if !f.Draining {
		return nil
	}
	return []string{"adbuffer drains: it takes no new connections, and ends once its requests have ended."}
}

func reloadNotice(f *facts) []string {
	if f.failed == nil {
		return nil
	}
	text := f.failed.Err.Error()
	var faults config.Errors
	if errors.As(f.failed.Err, &faults) && len(faults) > 1 {
		text = fmt.Sprintf("%s (+%d more)", faults[0], len(faults)-1)
	}
	return []string{fmt.Sprintf("The configuration in force differs from its file: the reload at %s was refused. %s", rfc3339(f.failed.At), text)}
}

func overloadNotice(f *facts) []string {
	o := &f.overload
	if !o.Overloaded {
		return nil
	}
	refuses := "it refuses some of them"
	if o.DryRun {
		refuses = "without dry_run, it would refuse some of them"
	}
	return []string{fmt.Sprintf("adbuffer has been overloaded since %s: requests wait %v ms for CPU, and %s; see server.overload.", rfc3339(*o.Since), o.LagMs, refuses)}
}

func rejectNotice(f *facts) []string {
	if len(f.rejecting) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("SSPs that reject most requests by a status of 4xx: %s. adbuffer explain shows what they get, and what is dropped.", listed(f.rejecting))}
}

// The share of a minute's requests without a route that is trouble, and how many requests show it.
const (
	noRouteShare    = 0.01
	noRouteRequests = 20
)

func (f *facts) lacksRoute() bool {
	return f.requests >= noRouteRequests && float64(f.unrouted) > noRouteShare*float64(f.requests)
}

func noRouteNotice(f *facts) []string {
	if !f.lacksRoute() {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d requests of the last minute match no route. Most of them ask for %s; see routes[].match.", f.unrouted, f.requests, listed(f.paths()))}
}

func (f *facts) paths() (all []string) {
	for _, p := range f.Unrouted {
		all = append(all, fmt.Sprintf("%s (%d)", p.Path, p.Count))
	}
	return all
}

func limitNotices(f *facts) (all []string) {
	for _, l := range f.limits {
		if l.Setting != proxy.OverloadSetting { // overloadNotice is about it
			all = append(all, fmt.Sprintf("A limit was reached within the last %.0f seconds: %s. See %s; %d of %d are in use.", recentEvents.Seconds(), l.Effect, l.Setting, l.Used, l.Limit))
		}
	}
	return all
}

func reuseNotice(f *facts) []string {
	if f.reuse == "" {
		return nil
	}
	return []string{f.reuse}
}

func certificateNotices(f *facts) (all []string) {
	for _, c := range f.Certificates {
		switch left := c.Expiry.Sub(f.now); {
		case left <= 0:
			all = append(all, fmt.Sprintf("The certificate of %s expired at %s: %s refuse it.", c.Setting, rfc3339(c.Expiry), c.Peers))
		case left < config.CertificateSoon:
			all = append(all, fmt.Sprintf("The certificate of %s expires at %s; from then on %s refuse it.", c.Setting, rfc3339(c.Expiry), c.Peers))
		}
	}
	return all
}

func redisNotice(f *facts) []string {
	if len(f.withoutRedis) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Redis is away: adbuffer sends these SSPs at most its last share of qps.limit: %s. SSPs get more than the limit if other replicas reach Redis; see fleet.redis.", listed(f.withoutRedis))}
}

func logNotice(f *facts) []string {
	if !f.losesLines {
		return nil
	}
	return []string{fmt.Sprintf("Log lines are lost, %d since start: standard error is blocked or fails. Is the disk of the log full, or its reader too slow?", f.LinesLost)}
}

// listed joins the first few texts, and says how many more there are.
func listed(texts []string) string {
	const shown = 5
	if more := len(texts) - shown; more > 0 {
		return fmt.Sprintf("%s (+%d more)", strings.Join(texts[:shown], ", "), more)
	}
	return strings.Join(texts, ", ")
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// recentEvents is how long a notice about events stays after the last event.
const recentEvents = 30 * time.Second

// rise remembers when a counter last rose.
type rise struct {
	count uint64
	at    time.Time
}

func (r *rise) look(now time.Time, count uint64) {
	if count > r.count {
		r.at = now
	}
	r.count = count
}

func (r *rise) isRecent(now time.Time) bool { return !r.at.IsZero() && now.Sub(r.at) < recentEvents }

// serviceEvents holds the times at which counters of the whole service last rose. look, which is called every
// historyStep, compares the counters with their last values.
type serviceEvents struct {
	mu       sync.Mutex // guards the fields below
	limits   []rise     // in the order of proxy.Limits
	lines    rise
	unrouted rise
	logged   time.Time // when the last line about requests without a route was logged
}

func (e *serviceEvents) look(now time.Time, limits []proxy.LimitState, linesLost uint64, routes []proxy.RouteCounts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limits == nil {
		e.limits = make([]rise, len(limits))
	}
	for i, l := range limits {
		e.limits[i].look(now, l.Reached)
	}
	e.lines.look(now, linesLost)
	var unrouted uint64
	for i := range routes {
		unrouted += routes[i].Outcomes[exchange.NoRoute.String()]
	}
	e.unrouted.look(now, unrouted)
}

// add adds the events of the last seconds to f. minutes holds the last minute of every route.
func (e *serviceEvents) add(f *facts, limits []proxy.LimitState, minutes []routeRow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, l := range limits {
		if i < len(e.limits) && e.limits[i].isRecent(f.now) {
			f.limits = append(f.limits, l)
		}
	}
	f.losesLines = e.lines.isRecent(f.now)
	for i := range minutes {
		m := &minutes[i].LastMinute
		f.requests += m.total()
		if e.unrouted.isRecent(f.now) {
			f.unrouted += m.noRoute
		}
	}
}

// logUnrouted logs the paths of requests without a route while such requests are too many, at most once every limitEvery.
func (e *serviceEvents) logUnrouted(log *zap.Logger, f *facts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.lacksRoute() && f.now.Sub(e.logged) >= limitEvery {
		e.logged = f.now
		log.Warn("requests match no route; see routes[].match", zap.Uint64("requests", f.unrouted), zap.Uint64("of", f.requests), zap.Strings("paths", f.paths()))
	}
}
