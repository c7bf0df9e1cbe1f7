package adminview

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/operate/advice"
	"adbuffer/internal/request/proxy"
	"adbuffer/internal/request/route"
	"adbuffer/internal/setup/config"
	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/header"
	"adbuffer/internal/wire/logs"
	"adbuffer/internal/wire/openrtb"
)

// Explained says how adbuffer would handle a request, with secrets hidden. The request is sent to no SSP.
type Explained struct {
	ID     string   `json:"id,omitempty"`
	Client string   `json:"client,omitempty"` // after the route's privacy
	Route  string   `json:"route,omitempty"`
	Why    []string `json:"why"` // why this route was chosen
	// Passed are earlier routes that would match if their conditions on the body held.
	Passed      []passedRoute `json:"passed,omitempty"`
	Mode        string        `json:"mode,omitempty"`
	BudgetMs    float64       `json:"budget_ms,omitempty"`    // the time that SSPs have, after deadline.reserve
	BudgetFrom  string        `json:"budget_from,omitempty"`  // the field or setting that sets this time
	TmaxIgnored string        `json:"tmax_ignored,omitempty"` // why the budget does not follow from the body's tmax; a clause in which "it" is tmax
	Fairness    string        `json:"fairness,omitempty"`     // the party whose share of the places the request uses
	Priority    string        `json:"priority,omitempty"`     // the route's priority
	Refused     *refused      `json:"refused,omitempty"`      // adbuffer's own response, without asking an SSP
	Machine     []string      `json:"machine"`                // settings that this machine lowers, and why
	// Now says why a running adbuffer may refuse the request at this moment, whatever the SSPs do.
	Now  []string       `json:"now"`
	SSPs []explainedSSP `json:"ssps"` // the route's SSPs, in their order

	explanation *proxy.Explanation // its Requests are those of SSPs
}

type refused struct {
	Outcome string `json:"outcome"`
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
}

// explainedSSP is an SSP that would or might be asked.
type explainedSSP struct {
	SSP       string  `json:"ssp"`
	Weight    int     `json:"weight,omitempty"`
	TimeoutMs float64 `json:"timeout_ms,omitempty"`
	Secondary bool    `json:"secondary,omitempty"`
	// BudgetMs and BudgetFrom are the SSP's own limit, if that is shorter than the limit of the request.
	BudgetMs   float64      `json:"budget_ms,omitempty"`
	BudgetFrom string       `json:"budget_from,omitempty"`
	Request    *capturedMsg `json:"request,omitempty"`  // the request as its first endpoint would get it
	Dropped    []string     `json:"dropped,omitempty"`  // the client's fields that are not forwarded to the SSP, each with the setting that decides so
	Error      string       `json:"error,omitempty"`    // why there is no request
	Filtered   []string     `json:"filtered,omitempty"` // the conditions on the body that do not hold, and why the body cannot be edited
	Shape      []string     `json:"shape,omitempty"`    // what qps.shape knows of the request, and what it would do
	Limits     []string     `json:"limits"`
	// Now says why a running adbuffer may refuse or delay the request at this moment.
	Now []string `json:"now"`
	// Spares says why each endpoint of a later priority gets no requests.
	Spares []string `json:"spares,omitempty"`
}

// Explain says how p, which uses the version current, would handle message: an HTTP/1.1 request from a
// client at peer.
func (v *Views) Explain(p *proxy.Proxy, current *reload.Version, message []byte, peer netip.Addr) *Explained {
	e := p.Explain(message, peer, func(name string) string { return current.Part(name).Host() })
	x := &Explained{ID: e.ID, BudgetMs: milliseconds(e.Budget), BudgetFrom: e.BudgetFrom, TmaxIgnored: e.IgnoredTmax, Why: []string{}, Machine: lowered(current.Config), Now: []string{}, SSPs: []explainedSSP{}, explanation: e}
	if e.Client.IsValid() {
		x.Client = e.Client.String()
	}
	if key := current.Config.Server.Fairness.Key; key != "" && e.Refusal == nil {
		x.Fairness = fairness(key, x.Client, e.FairValue)
	}
	if e.Refusal != nil {
		x.Refused = &refused{e.Refusal.Outcome.String(), e.Refusal.StatusCode(), e.Refusal.Detail}
	}
	if e.Route != nil {
		x.Priority = e.Route.Priority.String()
		x.Now = append(x.Now, overloadOf(e.Route, p.Snapshot().Overload)...)
		c := &current.Config.Routes[e.Route.Index]
		x.Route, x.Mode, x.Why = c.Name, string(c.Mode), why(current.Config, e)
	}
	for _, rt := range e.Passed {
		x.Passed = append(x.Passed, passedRoute{Route: rt.Name, Failed: failed(current.Config.Routes[rt.Index].Match.OpenRTB, e)})
	}
	for i := range e.Requests {
		q := &e.Requests[i]
		part := current.Part(q.Target.SSP.Name())
		s := explainedSSP{
			SSP: part.Config.Name, Weight: q.Target.Weight, TimeoutMs: milliseconds(q.Target.Timeout), Secondary: q.Target.Secondary, Limits: limitsOf(part.Config),
			Now: append(v.history.stateOf(part), adviceOf(part.SSP)...), Spares: sparesOf(part.SSP),
		}
		if q.Shaping != nil {
			s.Shape = shapingOf(q.Shaping)
		}
		if q.BudgetFrom != e.BudgetFrom {
			s.BudgetMs, s.BudgetFrom = milliseconds(q.Budget), q.BudgetFrom
		}
		switch {
		case q.Filtered:
			s.Filtered = failed(whenOf(&current.Config.Routes[e.Route.Index], part.Config), e)
			if q.Err != nil {
				s.Filtered = append(s.Filtered, q.Err.Detail)
			}
			s.Error = exchange.Filtered.String()
		case q.Err != nil:
			s.Error = q.Err.Error()
		default:
			s.Request, s.Dropped = sent(&q.Request, q.Target.SSP.Policy(), q.Query), q.Dropped
			if n := q.Request.HeadBytes(); n > exchange.LargeHead {
				s.Limits = append(s.Limits, fmt.Sprintf("the target and fields have %d bytes: many servers refuse more than %d", n, exchange.LargeHead))
			}
		}
		x.SSPs = append(x.SSPs, s)
	}
	return x
}

// passedRoute is a route whose conditions on the body do not hold.
type passedRoute struct {
	Route  string   `json:"route"`
	Failed []string `json:"failed"` // the conditions that do not hold, with the values of the body
}

// whenOf returns the conditions of an SSP, and of its part in a route.
func whenOf(c *config.Route, ssp *config.SSP) []config.BodyCondition {
	i := slices.IndexFunc(c.SSPs, func(leg config.RouteSSP) bool { return leg.Name == ssp.Name })
	return slices.Concat(ssp.When, c.SSPs[i].When)
}

// failed describes the conditions that do not hold, with the values that the body has.
func failed(conditions []config.BodyCondition, e *proxy.Explanation) (all []string) {
	unreadable := false
	for i, c := range reload.BodyConditions(conditions) {
		if c.TCF != nil {
			lack := e.Consent.Lack(c.TCF)
			if c.Not && lack == "" {
				all = append(all, bodyCondition(&conditions[i])+", but the vendor may process the request ("+e.Consent.Decide(c.TCF).String()+")")
			} else if !c.Not && lack != "" {
				all = append(all, bodyCondition(&conditions[i])+", but "+lack)
			}
		} else if e.Unreadable != openrtb.Readable {
			unreadable = true
		} else if seen := c.Explain(e.Body); !seen.Holds {
			all = append(all, bodyCondition(&conditions[i])+", but it is "+valuesSeen(c.Path.String(), &seen))
		}
	}
	if unreadable {
		all = append(all, fmt.Sprintf("the body matches no condition, since %s (%v)", e.Unreadable.Text(), e.Unreadable))
	}
	return all
}

// valuesSeen describes the values that the body has at the path of a condition.
func valuesSeen(path string, seen *openrtb.Seen) string {
	if len(seen.Values) == 0 {
		return "missing"
	}
	var values []string
	for _, v := range seen.Values {
		text := logs.Visible(v[:min(len(v), maxSeenValue)])
		if len(v) > maxSeenValue {
			text += "..."
		}
		if header.NamesSecret(path) {
			text = config.Hidden
		}
		values = append(values, text)
	}
	if seen.More {
		values = append(values, "...")
	}
	return strings.Join(values, ", ")
}

// maxSeenValue bounds how many bytes of a value an explanation shows.
const maxSeenValue = 80

// bodyCondition describes a condition on the body.
func bodyCondition(c *config.BodyCondition) string {
	values := func(list []config.JSONValue) string {
		shown := make([]string, len(list))
		for i, v := range list {
			shown[i] = v.Shown(c.Path)
		}
		return strings.Join(shown, ", ")
	}
	switch {
	case c.TCF != nil:
		text := fmt.Sprintf("tcf must allow vendor %d", c.TCF.Vendor)
		if c.TCF.Denies() {
			text = fmt.Sprintf("tcf must not allow vendor %d", c.TCF.Vendor)
		}
		if len(c.TCF.Purposes) > 0 {
			text += fmt.Sprintf(", purposes %v with consent", c.TCF.Purposes)
		}
		if len(c.TCF.LegitimateInterests) > 0 {
			text += fmt.Sprintf(", purposes %v with legitimate interest", c.TCF.LegitimateInterests)
		}
		return text
	case c.In != nil:
		return c.Path + " must be in [" + values(c.In) + "]"
	case c.NotIn != nil:
		return c.Path + " must not be in [" + values(c.NotIn) + "]"
	case *c.Exists:
		return c.Path + " must exist"
	}
	return c.Path + " must not exist"
}

// fairness names the party whose share of the places a request uses.
func fairness(key, client, value string) string {
	_, name, _ := strings.Cut(key, ":")
	switch {
	case key == "client_ip":
		value = client
	case value == "":
		value = "none, like all requests without it"
	default:
		value = shown(name, value)
	}
	return key + ": " + value
}

// shown returns a value of a request for people: cut, and hidden if its name says that it is a secret.
func shown(name, value string) string {
	if header.NamesSecret(name) {
		return config.Hidden
	}
	return logs.Visible([]byte(value[:min(len(value), maxSeenValue)]))
}

// overloadOf says that adbuffer is overloaded, and which share of the route's requests it refuses.
func overloadOf(rt *route.Route, s overload.State) []string {
	if !s.Overloaded {
		return nil
	}
	text := fmt.Sprintf("adbuffer has been overloaded since %s: all requests wait %v ms for CPU, and server.overload.target is %v ms; ",
		s.Since.UTC().Format(time.RFC3339), s.LagMs, s.TargetMs)
	share := math.Ceil(100 * s.Refusing[rt.Priority.String()])
	if s.DryRun {
		return []string{text + fmt.Sprintf("without dry_run it would refuse %v %% of the requests with priority %v", share, rt.Priority)}
	}
	return []string{text + fmt.Sprintf("it refuses %v %% of the requests with priority %v", share, rt.Priority)}
}

// adviceOf returns what a pool that sizes itself has decided, and the advice to enlarge a pool that is too
// small for its load.
func adviceOf(s *ssp.SSP) []string {
	p, o := s.Pool().Snapshot(), s.Pool().Options()
	all := advice.ForAuto(&p, &o)
	if text := advice.ForPool(&p, &o); strings.HasPrefix(text, "Set ") {
		all = append(all, text)
	}
	return all
}

// sparesOf says why endpoints of a later priority get no requests.
func sparesOf(s *ssp.SSP) (all []string) {
	endpoints := s.Pool().Snapshot().Endpoints
	serving, of, priority := 0, 0, 0
	for i := range endpoints {
		if endpoints[i].Active {
			serving, priority = serving+1, endpoints[i].Priority
		}
	}
	for i := range endpoints {
		if endpoints[i].Priority == priority {
			of++
		}
	}
	for i := range endpoints {
		// For other endpoints, inactiveReason says why they get no requests.
		if e := &endpoints[i]; serving > 0 && e.Priority > priority && e.State == balancer.Enabled.String() {
			all = append(all, fmt.Sprintf("%s has priority %d, and gets requests once no endpoint of priority %d works; now %d of %d work", e.Endpoint, e.Priority, priority, serving, of))
		}
	}
	return all
}

// lowered lists the limits that are lower than their settings, since this machine does not allow more.
func lowered(c *config.Config) []string {
	all := []string{}
	for _, l := range []config.Limit{c.MaxConnections(), c.MaxBufferedBytes()} {
		if text := l.Lowered(); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// why lists the conditions of the route, all of which hold, and the client's choice.
func why(cfg *config.Config, e *proxy.Explanation) []string {
	c := &cfg.Routes[e.Route.Index]
	all := []string{fmt.Sprintf("routes[%d] is the first of %d that matches", e.Route.Index, len(cfg.Routes)), "path " + c.Match.Path}
	if c.Match.Host != "" {
		all = append(all, "host "+c.Match.Host)
	}
	all = append(all, conditions("query", c.Match.Query)...)
	all = append(all, conditions("header", c.Match.Header)...)
	for i := range c.Match.OpenRTB {
		all = append(all, "body: "+bodyCondition(&c.Match.OpenRTB[i]))
	}
	if c.Match.Holdback > 0 {
		all = append(all, fmt.Sprintf("a share of %v of such requests is left to later routes (holdback)", c.Match.Holdback))
	}
	if e.Chosen != nil {
		all = append(all, "the client chose "+e.Chosen.SSP.Name())
	}
	return all
}

// conditions lists conditions on the query or the header.
func conditions(kind string, conditions []route.Condition) (all []string) {
	for _, m := range conditions {
		text := kind + " has " + m.Name
		if m.Value != nil && header.NamesSecret(m.Name) {
			text += "=" + config.Hidden
		} else if m.Value != nil {
			text += "=" + *m.Value
		}
		all = append(all, text)
	}
	return all
}

// limitsOf lists the limits of an SSP that may refuse or delay a request.
func limitsOf(c *config.SSP) []string {
	p := &c.Pool
	all := []string{
		fmt.Sprintf("pool.max_conns %d", p.MaxConns), fmt.Sprintf("pool.max_pending %d", p.MaxPending), fmt.Sprintf("pool.pending_timeout %v", p.PendingTimeout),
		fmt.Sprintf("timeouts.connect %v", c.Timeouts.Connect), fmt.Sprintf("max_response_bytes %d", c.MaxResponseBytes), fmt.Sprintf("retry.max %d", c.Retry.Max),
	}
	if c.MaxInFlight > 0 {
		all = append(all, fmt.Sprintf("max_in_flight %d", c.MaxInFlight))
	}
	if c.Timeouts.Request > 0 {
		all = append(all, fmt.Sprintf("timeouts.request %v", c.Timeouts.Request))
	}
	if c.QPS.Limit > 0 {
		all = append(all, fmt.Sprintf("qps.limit %v", c.QPS.Limit))
	}
	if s := &c.QPS.Shape; s.MaxLoss > 0 && len(s.Keys) > 0 {
		all = append(all, fmt.Sprintf("qps.shape.max_loss %v", s.MaxLoss))
	}
	if c.Breaker.Enabled {
		all = append(all, fmt.Sprintf("breaker.failure_ratio %v", c.Breaker.FailureRatio))
	}
	return all
}

// String returns x as text for a terminal.
func (x *Explained) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	lines := func(name string, texts []string) {
		for _, text := range texts {
			line(name, "%s", text)
		}
	}
	if x.Route != "" {
		line("route", "%s (%s)", x.Route, x.Mode)
		lines("", x.Why)
	}
	for _, p := range x.Passed {
		line("passed", "%s", p.Route)
		lines("", p.Failed)
	}
	if x.Client != "" {
		line("client", "%s", x.Client)
	}
	if x.ID != "" {
		line("id", "%s", x.ID)
	}
	if x.BudgetFrom != "" {
		line("deadline", "%v ms from %s, less deadline.reserve", x.BudgetMs, x.BudgetFrom)
	}
	if x.TmaxIgnored != "" {
		line("", "tmax is ignored: %s", x.TmaxIgnored)
	}
	if x.Fairness != "" {
		line("fairness", "%s", x.Fairness)
	}
	lines("now", x.Now)
	if x.Refused != nil {
		line("response", "%d %s: %s; no SSP is asked", x.Refused.Status, x.Refused.Outcome, x.Refused.Detail)
	}
	lines("machine", x.Machine)
	for i := range x.SSPs {
		s := &x.SSPs[i]
		b.WriteByte('\n')
		name := s.SSP
		if s.Weight > 0 && x.Mode == string(route.Split) {
			name += fmt.Sprintf(", weight %d", s.Weight)
		}
		if s.TimeoutMs > 0 {
			name += fmt.Sprintf(", timeout %v ms", s.TimeoutMs)
		}
		if s.Secondary {
			name += ", secondary: not waited for"
		}
		line("ssp", "%s", name)
		if s.BudgetFrom != "" {
			line("deadline", "%v ms from %s", s.BudgetMs, s.BudgetFrom)
		}
		line("limits", "%s", strings.Join(s.Limits, ", "))
		lines("now", s.Now)
		lines("spare", s.Spares)
		lines("filtered", s.Filtered)
		lines("shape", s.Shape)
		if s.Request == nil {
			line("request", "none: %s", s.Error)
			continue
		}
		line("request", "%s %s", s.Request.Method, s.Request.URL)
		for _, f := range s.Request.Fields {
			line("", "%s: %s", f[0], f[1])
		}
		if s.Request.BodyBytes > 0 {
			line("", "and a body of %d bytes", s.Request.BodyBytes)
		}
		lines("dropped", s.Dropped)
	}
	return b.String()
}
