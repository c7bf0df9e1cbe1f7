package load

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// A result beyond one of these limits is marked as doubtful.
const (
	maxFailed    = 0.01 // share of requests that may fail
	minKept      = 0.99 // share of due requests that must be sent
	maxBusy      = 0.95 // share of time that a thread or a core may be busy
	maxLag       = 2 * time.Millisecond
	maxLagToWait = 0.05 // lag as a share of the median latency
)

func doubts(plan *Plan, r *Result) (out []string) {
	doubtIf := func(wrong bool, format string, args ...any) {
		if wrong {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	failed := r.Whole.FailedShare()
	doubtIf(failed > maxFailed, "%.1f %% %s", failed*100, failedSuffix)
	doubtIf(r.Whole.Answered == 0, "no request was answered")
	if plan.Open {
		var due float64
		for _, p := range plan.Phases {
			if !p.Unrecorded {
				due += p.Requests()
			}
		}
		unsent := r.Whole.Errors[noConnection] + r.Whole.Errors[dropped]
		// The standard deviation of random arrivals is the square root of their number.
		slack := 0.0
		if plan.Poisson && due > 0 {
			slack = 4 / math.Sqrt(due)
		}
		sent := float64(r.Whole.Offered - min(unsent, r.Whole.Offered))
		doubtIf(due >= 100 && sent < due*(minKept-slack),
			"the rate was not kept: %.0f of %.0f requests were sent", sent, due)
		lag := time.Duration(r.Generator.LagP99 * float64(time.Millisecond))
		limit := max(maxLag, time.Duration(r.Whole.Latency.P50*maxLagToWait*float64(time.Millisecond)))
		doubtIf(lag > limit, "the generator was late: it saw 1 %% of the due requests more than %v after their time",
			lag.Round(10*time.Microsecond))
	}
	thread := r.Generator.Busiest > maxBusy
	doubtIf(thread, "the generator was saturated: its threads ran %.0f %% of the time", r.Generator.Busiest*100)
	doubtIf(!thread && r.Generator.Core > maxBusy, "the generator's cores were saturated: busy %.0f %% of the time",
		r.Generator.Core*100)
	return out
}

// AboutFailures reports whether a doubt is about failed requests, which some tests provoke, and not
// about the generator.
func AboutFailures(doubt string) bool { return strings.HasSuffix(doubt, failedSuffix) }

// failedSuffix ends the doubt about requests that failed.
var failedSuffix = fmt.Sprintf("of the requests failed, more than %.0f %%", maxFailed*100)
