package adminview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/setup/reload"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/ssp/dial"
	"adbuffer/internal/ssp/pool"
	"adbuffer/internal/ssp/ssp"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/logs"
)

// conditionKind is a state of an SSP in which its requests are refused or cannot be sent.
type conditionKind int

const (
	shedding conditionKind = iota
	unreachable
	refusedCertificate
	noPlace
	paused
	unresolved
	rejecting
	refusingCoding
)

// conditionMessages are the messages that are logged when a condition begins and when it ends.
var conditionMessages = [...]struct{ began, ended string }{
	shedding:           {"the breaker sheds requests because the SSP fails; see breaker", "the breaker sheds no more requests"},
	unreachable:        {"no connection to an endpoint can be opened", "connections to an endpoint can be opened again"},
	refusedCertificate: {"adbuffer refuses the certificate of an endpoint, whose open connections stay in use until they end", "the certificate of an endpoint is accepted again"},
	noPlace:            {"requests found no place on a connection", "requests find places again"},
	unresolved:         {"the name of an endpoint cannot be looked up", "the name of an endpoint can be looked up again"},
	rejecting:          {"the SSP rejects most requests", "the SSP accepts requests again"},
	refusingCoding:     {"the SSP refuses compressed requests; see compress.coding", "the SSP accepts compressed requests"},
	paused:             {"the SSP asked for a pause with Retry-After; see qps.limit", "the pause that the SSP asked for is over"},
}

// conditionEnds is how many looks in a row must not find a condition before its end is logged. So a
// condition that comes and goes is logged once.
const conditionEnds = 15

// condition is a condition that an SSP, or one of its endpoints, is in.
type condition struct {
	conditionID
	why string
}

type conditionID struct {
	kind     conditionKind
	endpoint string // "" = the whole SSP
}

// String returns the condition in a sentence.
func (c condition) String() string {
	text := conditionMessages[c.kind].began
	if c.endpoint != "" {
		text += ", " + c.endpoint
	}
	return text + ": " + c.why
}

// conditionsOf returns the current conditions of an SSP.
func conditionsOf(p *pool.Snapshot, s *ssp.Snapshot, lookups []dial.FailedLookup, last recent) (all []condition) {
	add := func(kind conditionKind, endpoint, format string, args ...any) {
		all = append(all, condition{conditionID{kind, endpoint}, fmt.Sprintf(format, args...)})
	}
	if s.BreakerShedRatio > 0 {
		outcome := commonestFailure(last.outcomes, blamesSSP)
		if outcome != "" {
			outcome = ", most of them as " + outcome
		}
		add(shedding, "", "%.0f %% of the requests are shed; of the last %d that were sent, %d failed%s",
			100*s.BreakerShedRatio, s.BreakerRequests, s.BreakerFailures, outcome)
	}
	for i := range p.Endpoints {
		switch e := &p.Endpoints[i]; {
		case e.LastDialError == "":
		case e.Connections == 0:
			add(unreachable, e.Endpoint, "%s", logs.Cut(e.LastDialError))
		case strings.Contains(e.LastDialError, "x509: "):
			add(refusedCertificate, e.Endpoint, "%s", logs.Cut(e.LastDialError))
		}
	}
	for _, l := range lookups {
		text := "since %s: %s"
		if l.Kept {
			text += "; the addresses of the last successful look-up stay in use"
		}
		add(unresolved, l.Host, text, l.Since.UTC().Format(time.RFC3339), logs.Cut(l.Err.Error()))
	}
	var refused []string
	for _, o := range []exchange.Outcome{exchange.PendingFull, exchange.PendingTimeout} {
		if n := last.outcomes[o.String()]; n > 0 {
			refused = append(refused, fmt.Sprintf("%d as %s", n, o))
		}
	}
	if len(refused) > 0 {
		add(noPlace, "", "in the last seconds %s; see adbuffer plan --admin", strings.Join(refused, ", "))
	}
	if s.BackoffSeconds > 0 {
		add(paused, "", "for %.1f s more; see retry_after_max and retry_after_share", s.BackoffSeconds)
	}
	if last.rejects() {
		add(rejecting, "", "of the last %d responses, %d have a status of 4xx, and the last one %d; adbuffer explain shows what the SSP gets, and what is dropped", last.responses, last.rejected, s.Last4xx)
	}
	if s.RefusedCoding != "" {
		add(refusingCoding, "", "it has responded to all requests in %s with 400 or 415", s.RefusedCoding)
	}
	return all
}

// conditionLog logs once when a condition of one SSP begins, and once when it ends.
type conditionLog struct {
	open map[conditionID]*openCondition
}

type openCondition struct {
	since  time.Time
	absent int // looks in a row without the condition
}

func (c *conditionLog) look(log *zap.Logger, now time.Time, all []condition) {
	if c.open == nil {
		c.open = make(map[conditionID]*openCondition)
	}
	for _, found := range all {
		if known := c.open[found.conditionID]; known != nil {
			known.absent = 0
			continue
		}
		c.open[found.conditionID] = &openCondition{since: now}
		found.line(log).Warn(conditionMessages[found.kind].began, zap.String("why", found.why))
	}
	for id, known := range c.open {
		if slices.ContainsFunc(all, func(found condition) bool { return found.conditionID == id }) {
			continue
		}
		known.absent++
		if known.absent >= conditionEnds {
			delete(c.open, id)
			id.line(log).Info(conditionMessages[id.kind].ended, zap.Duration("lasted", now.Sub(known.since)))
		}
	}
}

func (id conditionID) line(log *zap.Logger) *zap.Logger {
	if id.endpoint == "" {
		return log
	}
	return log.With(zap.String("endpoint", id.endpoint))
}

// stateOf returns the reasons, as explain shows them, why requests to an SSP may be refused or delayed now.
func (h *histories) stateOf(part *reload.Part) (all []string) {
	for _, t := range h.rowOf(part).troubles {
		if t.each == nil {
			t.each = []string{t.text}
		}
		all = append(all, t.each...)
	}
	return all
}

// inactiveReason says why an endpoint gets no requests. It returns "" if the endpoint may get requests.
func inactiveReason(e *pool.EndpointSnapshot) string {
	switch {
	case e.State == balancer.Ejected:
		return fmt.Sprintf("ejected for %.1f s; see ejection", e.EjectedSeconds)
	case e.State == balancer.Enabled.String() && (e.Connections > 0 || e.LastDialError == ""):
		return ""
	case e.State == balancer.Enabled.String():
		return "unreachable: " + logs.Cut(e.LastDialError)
	case e.State != balancer.Unhealthy:
		return e.State
	case e.LastCheckError == "":
		return "unhealthy, and its last health check succeeded; see health_check"
	}
	return "unhealthy: " + logs.Cut(e.LastCheckError) + "; see health_check"
}
