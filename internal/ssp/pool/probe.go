package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// prober takes an ejected endpoint from the moment its probe is due to the verdict about it. Package
// balancer keeps the step of each probe: the pool changes the step only by prober, while settings, operators and
// the end of an ejection reset it. The probe is one request, or a health check if the endpoint has health checks:
//
//	due ─┬─ health checks ────────────────────────────▶ check ──▶ verdict
//	     ├─ a connection is open ──▶ ready ──▶ sent ────────────▶ verdict
//	     └─ none ──▶ dial ─┬───────▶ ready, or sent at once
//	                       └─ fails ───────────────────────────▶ ejected for longer
//
// A probe that was not sent, because its connection closed first, begins again.
//
// Guarded by Pool.mu.
type prober struct {
	opts      *Options // the pool's
	endpoints *balancer.Balancer
	dials     *dials
	do        *actions // the machine's
}

// localProbePause is the pause before the next dial for a probe, after one that failed because of
// adbuffer's machine. No request waits for it.
const localProbePause = time.Second

func (pr *prober) check(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeIsCheck, now)
}

func (pr *prober) dial(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeDials, now)
}

// ready makes the next request on a connection to e the probe.
func (pr *prober) ready(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeReady, now)
}

func (pr *prober) sent(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeSent, now)
}

// notSent makes the probe begin again: the connection for it has closed.
func (pr *prober) notSent(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.NoProbe, now)
}

// awaitsDial reports whether the connection that the pool opens to e is for the probe.
func (pr *prober) awaitsDial(e *endpoint) bool { return e.Probe() == balancer.ProbeDials }

// dialEnded records that a dial to e ended. If the probe still waits for the dial, the dial brought no connection:
// then dialEnded returns true.
func (pr *prober) dialEnded(e *endpoint, err error, now time.Time) bool {
	if !pr.awaitsDial(e) {
		return false
	}
	if isLocal(err) {
		pr.endpoints.ProbeLater(e.Endpoint, now.Add(localProbePause))
	} else {
		pr.endpoints.ProbeFailed(e.Endpoint)
	}
	return true
}

// ended records the result of the request that was the probe of e.
func (pr *prober) ended(e *endpoint, result exchange.Result, now time.Time) balancer.Change {
	return pr.endpoints.ProbeEnded(e.Endpoint, result, e.open > 0, now)
}

// begin begins the probe of e.
func (pr *prober) begin(e *endpoint, now time.Time) {
	switch {
	case pr.opts.HealthCheck.on():
		pr.do.check(e)
		pr.check(e, now)
	case e.open > 0:
		pr.ready(e, now)
	case e.dialing == 0 && pr.dials.startFor(e, now):
		pr.dial(e, now)
	}
}
