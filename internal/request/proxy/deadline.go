package proxy

import (
	"fmt"
	"math"
	"time"

	"adbuffer/internal/machine/overload"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/syntax"
)

// DeadlineOptions say how long a request may take.
type DeadlineOptions struct {
	Default     time.Duration
	Max         time.Duration
	Header      string // name of the field with the client's deadline; "" = no field
	OpenRTBTmax bool   // the body's tmax is a deadline, too
	RewriteTmax bool   // an SSP needs the position of the body's tmax
	Reserve     time.Duration
	MinBudget   time.Duration
}

// The bounds of a deadline that a client states, in milliseconds.
const (
	minStatedMs = 1
	maxStatedMs = 600000
)

// headBudget returns the smallest of deadline.max, the deadline field and the Grpc-Timeout of a gRPC call. stated says
// whether the client sent at least one of these fields.
func (r *request) headBudget() (budget time.Duration, stated bool, f *refusal) {
	o := &r.opts.Deadline
	budget = o.Max
	r.ssp.DeadlineFrom = "deadline.max"
	if o.Header != "" {
		if v, n := r.fields.Timeout(); n > 0 {
			ms, ok := parseMs(v)
			if !ok || n > 1 {
				return 0, false, &refusal{Outcome: exchange.BadRequest, Detail: fmt.Sprintf("%s must be one whole number of milliseconds from %d to %d; see deadline.header", o.Header, minStatedMs, maxStatedMs)}
			}
			budget, stated = r.smaller(budget, ms, o.Header), true
		}
	}
	if v, n := r.fields.GRPCTimeout(); n > 0 {
		timeout, ok := parseGRPCTimeout(v)
		if !ok || n > 1 {
			return 0, false, &refusal{Outcome: exchange.BadRequest, Detail: "grpc-timeout must be one number of 1 to 8 digits, and a unit: H, M, S, m, u or n"}
		}
		budget, stated = r.smaller(budget, timeout, "grpc-timeout"), true
	}
	return budget, stated, nil
}

// setDeadline sets the deadline of r. The time for the request is the smaller of headBudget and, with OpenRTBTmax,
// the body's tmax; deadline.default bounds it too if the client states no deadline. deadline.reserve and Waited are
// subtracted from it. If less than deadline.min_budget is left, setDeadline returns a refusal.
func (r *request) setDeadline() *refusal {
	o := &r.opts.Deadline
	budget, stated, f := r.headBudget()
	if f != nil {
		return f
	}
	if (o.OpenRTBTmax || o.RewriteTmax) && len(r.body) > 0 {
		limit, why, f := tmax(r)
		switch r.ignoredTmax = why; {
		case f != nil:
			return f
		case why != 0 || !o.OpenRTBTmax:
		case limit > budget:
			r.ignoredTmax, stated = tmaxLonger, true
		default:
			budget, stated = r.smaller(budget, limit, "tmax"), true
		}
	}
	if !o.OpenRTBTmax && len(r.body) > 0 {
		r.ignoredTmax = tmaxOff
	}
	if !stated {
		budget = r.smaller(budget, o.Default, "deadline.default")
	}
	budget -= o.Reserve + r.Waited
	r.ssp.Deadline = r.started.Add(budget)
	if budget < o.MinBudget && r.Waited > 0 {
		return &refusal{Outcome: exchange.Overloaded, RetryAfter: overload.RetryAfter,
			Detail: fmt.Sprintf("adbuffer has too little CPU: it read the request %v after it came, and only %v of the request's time is left, less than %v; see server.overload and deadline.min_budget", r.Waited, max(budget, 0), o.MinBudget)}
	}
	if budget < o.MinBudget {
		return &refusal{Outcome: exchange.Deadline, Detail: fmt.Sprintf("%s leaves only %v for a request to an SSP, less than %v; see deadline.reserve and deadline.min_budget", r.ssp.DeadlineFrom, max(budget, 0), o.MinBudget)}
	}
	return nil
}

// smaller returns the smaller of budget and other. If other is not larger than budget, it also records from
// as the source of the deadline.
func (r *request) smaller(budget, other time.Duration, from string) time.Duration {
	if other <= budget {
		r.ssp.DeadlineFrom = from
		return other
	}
	return budget
}

// maxStatedDigits is the number of digits of maxStatedMs.
const maxStatedDigits = 6

// parseMs reads a whole number of milliseconds within the allowed range.
func parseMs(v []byte) (time.Duration, bool) {
	if len(v) > maxStatedDigits {
		return 0, false
	}
	n, ok := syntax.ParseNumber(v, maxStatedMs+1)
	if !ok || n < minStatedMs || n > maxStatedMs {
		return 0, false
	}
	return time.Duration(n) * time.Millisecond, true
}

// parseGRPCTimeout reads the value of a Grpc-Timeout. The number may be 0, which clients with no time left
// send. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
func parseGRPCTimeout(v []byte) (time.Duration, bool) {
	const maxDigits = 8
	last := len(v) - 1
	if last < 1 || last > maxDigits {
		return 0, false
	}
	n, ok := syntax.ParseNumber(v[:last], syntax.MaxNumber)
	if !ok {
		return 0, false
	}
	var unit time.Duration
	switch v[last] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	return time.Duration(min(n, int(math.MaxInt64/unit))) * unit, true
}
