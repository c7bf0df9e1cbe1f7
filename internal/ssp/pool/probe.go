package pool

import (
	"time"

	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// prober takes an ejected endpoint from the moment its probe is due to the verdict about it. Package
// balancer keeps the step. The pool changes it only by prober; settings, operators and the end of an ejection reset it.
// The probe is one request, or a health check if the
// endpoint has health checks:
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
	endpoints *balancer.Balancer
}

// localProbePause is the pause before the next dial for a probe, after one that failed because of
// adbuffer's machine. No request waits for it.
const localProbePause = time.Second

func (pr prober) check(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeIsCheck, now)
}

func (pr prober) dial(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeDials, now)
}

// ready makes the next request on a connection to e the probe.
func (pr prober) ready(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeReady, now)
}

func (pr prober) sent(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.ProbeSent, now)
}

// notSent makes the probe begin again: the connection for it has closed.
func (pr prober) notSent(e *endpoint, now time.Time) {
	pr.endpoints.SetProbe(e.Endpoint, balancer.NoProbe, now)
}

// dials reports whether the connection that the pool opens to e is for the probe.
func (pr prober) dials(e *endpoint) bool { return e.Probe() == balancer.ProbeDials }

// dialEnded records that a dial to e ended. If the probe still waits for it, it brought no connection.
// dialEnded reports whether that is so.
func (pr prober) dialEnded(e *endpoint, err error, now time.Time) bool {
	if !pr.dials(e) {
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
func (pr prober) ended(e *endpoint, result exchange.Result, now time.Time) balancer.Change {
	return pr.endpoints.ProbeEnded(e.Endpoint, result, e.open > 0, now)
}

// beginProbe begins the probe of e.
func (k *machine) beginProbe(e *endpoint, now time.Time) {
	switch pr := k.conns.probes; {
	case k.opts.HealthCheck.on():
		k.do.check(e)
		pr.check(e, now)
	case e.open > 0:
		pr.ready(e, now)
	case e.dialing == 0 && k.dialFor(e, now):
		pr.dial(e, now)
	}
}

// probeOn makes the next request on m, a new connection, the probe of its ejected endpoint.
func (k *machine) probeOn(m *member, r waitResult, now time.Time) {
	if k.queue.n > 0 && (m.exclusive() || m.takes(k.queue.first().alone)) {
		k.conns.probes.sent(m.ep, now)
		m.fresh = m.exclusive()
		k.give(choice{m: m, probe: true}, r, now)
		return
	}
	if m.exclusive() {
		m.ep.idle.push(m) // even if max_idle is 0
	}
	k.conns.probes.ready(m.ep, now)
}

// probeOver records how the request that was the probe of m's endpoint ended.
func (k *machine) probeOver(m *member, result exchange.Result, now time.Time) {
	k.applyChange(m.ep, k.conns.probes.ended(m.ep, result, now))
	k.conns.due |= dueRevive
}
