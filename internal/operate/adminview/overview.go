package adminview

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/operate/advice"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/logs"
)

// urgency orders the troubles of SSPs from harmless to worst.
type urgency int

const (
	calm     urgency = iota
	byHand           // an operator has drained or disabled the SSP
	someFail         // some of its requests fail
	waits            // requests wait for a place, or found no place
	degraded         // an endpoint gets no requests, a look-up fails, or the SSP asked for a pause
	rejects          // most of its responses have a status of 4xx
	poolFull         // most of its requests find no place, although the SSP responds to the others
	failing          // most of its requests fail
	down             // no request can be sent to the SSP
)

var urgencyNames = [...]string{calm: "", byHand: "by hand", someFail: "some fail", waits: "waiting", degraded: "degraded", rejects: "rejects", poolFull: "pool full", failing: "failing", down: "down"}

// trouble is a fact about an SSP that matters to its requests at this moment. Troubles that are calm need no attention.
type trouble struct {
	urgency urgency
	text    string
	each    []string // what explain shows in place of text, such as a text for each endpoint
}

// sspRow is an SSP in the overview.
type sspRow struct {
	SSP     string   `json:"ssp"`
	Urgency int      `json:"urgency"`       // higher is worse; 0 = no trouble
	Trouble string   `json:"trouble"`       // the name of the urgency; "" = no trouble
	Why     []string `json:"why,omitempty"` // the troubles that need attention, worst first

	Saturation    float64    `json:"saturation"`
	SaturationMax float64    `json:"saturation_max"`
	PlacesInUse   int        `json:"places_in_use"`
	PlacesLimit   int        `json:"places_limit"`
	Waiting       int        `json:"waiting"` // requests
	LastMinute    lastMinute `json:"last_minute"`
	Trend         trend      `json:"trend"`

	troubles []trouble // worst first
	rejects  bool
	alone    float64 // ssp.Snapshot.QPSAlone
}

func worstFirst(a, b sspRow) int {
	return cmp.Or(b.Urgency-a.Urgency, b.failedQuarters()-a.failedQuarters(), cmp.Compare(a.SSP, b.SSP))
}

// failedQuarters returns 0 for an SSP without trouble, otherwise the share of its requests that failed, as a number of
// quarters (0 to 4), rounded up. The steps are so coarse that SSPs do not keep changing places.
func (r *sspRow) failedQuarters() int {
	m := &r.LastMinute
	if r.Urgency == int(calm) || m.Requests == m.byHand {
		return 0
	}
	return int(math.Ceil(4 * float64(m.Failed-m.byHand) / float64(m.Requests-m.byHand)))
}

// routeRow is a route in the overview.
type routeRow struct {
	Route      string     `json:"route"`
	LastMinute lastMinute `json:"last_minute"`
}

// Overview returns the response to GET /overview: a row for each SSP and route, the worst SSPs first, and notices about
// what is wrong with the whole service. The caller gives service without ConfigHash.
func (v *Views) Overview(service Service, routes []proxy.RouteCounts, limits []proxy.LimitState, totals proxy.Snapshot, known Facts) any {
	var rows []sspRow
	var lower []string
	v.versions.Look(func(current *reload.Version) {
		service.ConfigHash, lower = current.Hash(), lowered(current.Config)
		rows = make([]sspRow, len(current.Parts))
		for i, p := range current.Parts {
			rows[i] = v.history.rowOf(p)
		}
	})
	slices.SortFunc(rows, worstFirst)
	all := v.routeRows(routes)
	f := v.factsOf(known, limits, totals, all, time.Now())
	for i := range rows {
		if rows[i].rejects {
			f.rejecting = append(f.rejecting, rows[i].SSP)
		}
		if rows[i].alone > 0 {
			f.withoutRedis = append(f.withoutRedis, fmt.Sprintf("%s (%v/s)", rows[i].SSP, round(rows[i].alone)))
		}
	}
	return map[string]any{
		"service": service, "totals": totals, "notices": noticesOf(f), "lowered": lower,
		"failed_outcomes": failedOutcomes, "ssps": rows, "routes": all,
	}
}

func (v *Views) routeRows(routes []proxy.RouteCounts) []routeRow {
	all := make([]routeRow, len(routes))
	for i := range routes {
		all[i] = routeRow{routes[i].Name, v.history.lastMinuteOfRoute(&routes[i])}
	}
	return all
}

// factsOf returns all facts except those about SSPs.
func (v *Views) factsOf(known Facts, limits []proxy.LimitState, totals proxy.Snapshot, routes []routeRow, now time.Time) *facts {
	f := &facts{Facts: known, now: now, failed: v.versions.LastFailed(), overload: totals.Overload, reuse: v.reuse.notice()}
	v.events.add(f, limits, routes)
	return f
}

func (h *histories) rowOf(part *reload.Part) sspRow {
	p, s := part.SSP.Pool().Snapshot(), part.SSP.Snapshot()
	minute, trend, last := h.ofSSP(part.SSP, s.Outcomes)
	row := sspRow{
		SSP: part.Config.Name, Saturation: round(p.Saturation), SaturationMax: round(p.SaturationMax),
		PlacesInUse: p.PlacesInUse, PlacesLimit: p.PlacesLimit, Waiting: p.Pending,
		LastMinute: minute, Trend: trend, rejects: last.rejects(), alone: s.QPSAlone,
	}
	row.troubles = troublesOf(&p, &s, &row.LastMinute)
	fails := slices.ContainsFunc(row.troubles, func(t trouble) bool { return t.urgency >= failing })
	for _, c := range conditionsOf(&p, &s, part.FailedLookups(), last) {
		t := trouble{urgency: conditionUrgency[c.kind], text: c.String()}
		switch {
		case c.kind == unreachable: // troublesOf reports unreachable endpoints
			continue
		case c.kind == shedding && fails: // the trouble that makes the breaker shed requests is reported
			t = trouble{each: []string{t.text}}
		}
		row.troubles = append(row.troubles, t)
	}
	for _, c := range part.AddressChanges() {
		if time.Since(c.At) < addressChangeShown {
			row.troubles = append(row.troubles, trouble{text: fmt.Sprintf("DNS changed the addresses of %s at %s: %v came, %v went, %v are in use", c.Host, rfc3339(c.At), c.Came, c.Went, c.InUse)})
		}
	}
	slices.SortStableFunc(row.troubles, func(a, b trouble) int { return int(b.urgency - a.urgency) })
	for _, t := range row.troubles {
		row.Urgency = max(row.Urgency, int(t.urgency))
		if t.urgency > calm {
			row.Why = append(row.Why, t.text)
		}
	}
	row.Trouble = urgencyNames[row.Urgency]
	return row
}

var conditionUrgency = [...]urgency{shedding: failing, unreachable: degraded, refusedCertificate: degraded, noPlace: waits, unresolved: degraded, paused: degraded, rejecting: rejects, refusingCoding: rejects}

// The shares of failed requests in the last minute from which an SSP is failing, and from which some of its requests fail.
const (
	failingShare  = 0.5
	someFailShare = 0.01
)

// addressChangeShown is for how long a change of addresses is news. An address that went stays in use for as long.
const addressChangeShown = time.Minute

// troublesOf returns what is wrong with an SSP: with its state, its endpoints, its queue, its limits, and its requests of
// the last minute.
func troublesOf(p *pool.Snapshot, s *ssp.Snapshot, m *lastMinute) (all []trouble) {
	add := func(u urgency, format string, args ...any) {
		all = append(all, trouble{urgency: u, text: fmt.Sprintf(format, args...)})
	}
	if p.State != balancer.Enabled.String() {
		add(byHand, "an operator has set it to %s; see adbuffer ssp enable", p.State)
	}
	endpoints, any := endpointTrouble(p.Endpoints)
	if any {
		all = append(all, endpoints)
	}
	// Requests that were refused because an operator disabled the SSP are no failures of the SSP.
	if failed, asked := m.Failed-m.byHand, m.Requests-m.byHand; failed > 0 && !m.over && endpoints.urgency != down {
		share, why := float64(failed)/float64(asked), m.howFailed
		if 2*m.noPlace > failed && float64(m.bySSP) < failingShare*float64(asked-failed+m.bySSP) {
			why += "; its pool is full: see pool.max_conns"
		}
		u := calm
		switch {
		case share >= failingShare && why != m.howFailed:
			u = poolFull
		case share >= failingShare:
			u = failing
		case share >= someFailShare:
			u = someFail
		}
		if u != calm {
			add(u, "%s of %s requests of the last minute failed: %s", advice.Number(float64(failed)), advice.Number(float64(asked)), why)
		}
	}
	switch full := p.PlacesInUse >= p.PlacesLimit && p.PlacesLimit > 0; {
	case p.Pending > 0 && full:
		add(waits, "all %d places are in use, and %d requests wait; see pool.max_conns and pool.max_pending", p.PlacesLimit, p.Pending)
	case p.Pending > 0:
		add(waits, "%d requests wait, and %d of %d places are in use", p.Pending, p.PlacesInUse, p.PlacesLimit)
	case full:
		add(calm, "all %d places are in use; see pool.max_conns", p.PlacesLimit)
	}
	if o := s.ConcurrencyLimit; o > 0 && s.InFlight >= o {
		add(waits, "%d of %d requests to it are in flight; see max_in_flight", s.InFlight, o)
	}
	if s.QPSAlone > 0 { // the notice about Redis needs the attention
		add(calm, "Redis is away: adbuffer sends at most %v requests a second, its last share of qps.limit; see fleet.redis", round(s.QPSAlone))
	}
	return all
}

// endpointTrouble says how many endpoints get no requests, and why, for example "1 of 3 endpoints ejected:
// connection refused". It is calm if operators have drained or disabled these endpoints.
func endpointTrouble(endpoints []pool.EndpointSnapshot) (t trouble, any bool) {
	why := map[string]int{}
	out := 0
	var order []string
	for i := range endpoints {
		e := &endpoints[i]
		if text := inactiveReason(e); text != "" {
			t.each = append(t.each, fmt.Sprintf("endpoint %s is %s", e.Endpoint, text))
		}
		text := endpointFault(e)
		if text == "" {
			continue
		}
		out++
		why[text]++
		if why[text] == 1 {
			order = append(order, text)
		}
	}
	for i, text := range order {
		order[i] = fmt.Sprintf("%d of %d endpoints %s", why[text], len(endpoints), text)
	}
	t.text = strings.Join(order, "; ")
	switch {
	case out > 0 && out == len(endpoints):
		t.urgency = down
	case out > 0:
		t.urgency = degraded
	}
	return t, len(t.each) > 0
}

// endpointFault says which fault keeps an endpoint from getting requests. It returns "" if the endpoint may get requests,
// or if an operator has drained or disabled it, which is not a fault.
func endpointFault(e *pool.EndpointSnapshot) string {
	switch {
	case e.State == balancer.Ejected && e.LastDialError != "":
		return "ejected: " + lastPart(e.LastDialError)
	case e.State == balancer.Ejected:
		if failure := commonestFailure(e.Requests, func(exchange.Outcome) bool { return true }); failure != "" {
			return "ejected: most of its failures are " + failure
		}
		return "ejected"
	case e.State == balancer.Unhealthy:
		if e.LastCheckError == "" {
			return "unhealthy"
		}
		return "unhealthy: " + lastPart(e.LastCheckError)
	case e.State == balancer.Enabled.String() && e.Connections == 0 && e.LastDialError != "":
		return "unreachable: " + lastPart(e.LastDialError)
	}
	return ""
}

// lastPart returns the cause at the end of an error's text, such as "connection refused". The parts before
// the cause name the address and the operation, which the page shows elsewhere.
func lastPart(text string) string {
	if _, fault, ok := strings.Cut(text, "x509: "); ok {
		text, _, _ = strings.Cut(fault, ": ")
		return logs.Cut(text)
	}
	return logs.Cut(strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:]))
}
