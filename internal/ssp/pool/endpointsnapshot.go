package pool

import (
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// EndpointSnapshot is an endpoint at one moment, for /pools and the metrics. Counts cover the time
// since start.
type EndpointSnapshot struct {
	Endpoint string `json:"endpoint"` // host:port
	State    string `json:"state"`    // disabled, draining, ejected, unhealthy or enabled
	Active   bool   `json:"active"`   // gets new requests
	// Unreachable: no connection is open, and the last dial to each address or the look-up failed.
	Unreachable      bool    `json:"unreachable"`
	Weight           int     `json:"weight"` // in force
	ConfiguredWeight int     `json:"configured_weight"`
	Priority         int     `json:"priority"`
	Share            float64 `json:"share"` // of new requests, 0 to 1

	Connections    int     `json:"connections"` // open connections, including draining ones
	InFlight       int     `json:"in_flight"`   // places in use
	Dialing        int     `json:"dialing"`
	EjectedSeconds float64 `json:"ejected_seconds"` // remaining time of the ejection

	Requests   map[string]uint64 `json:"requests"` // attempts by outcome; outcomes without attempts are absent
	Ejections  uint64            `json:"ejections"`
	DialErrors uint64            `json:"dial_errors"`
	// LastDialError is the error of the last dial. It is "" if a connection has been opened since.
	LastDialError string `json:"last_dial_error,omitempty"`

	ChecksOK     uint64 `json:"checks_ok"` // health checks
	ChecksFailed uint64 `json:"checks_failed"`
	// LastCheckError is the error of the last health check, "" if it succeeded.
	LastCheckError string `json:"last_check_error,omitempty"`

	P50Seconds float64 `json:"p50_seconds"` // upper bounds with the precision of the histogram's buckets
	P99Seconds float64 `json:"p99_seconds"`

	stats *endpointStats
}

// unknown reports whether the look-up of e's addresses failed.
func (e *endpoint) unknown() bool { return e.open == 0 && len(e.addrs) == 0 && e.dialError != nil }

func (s *endpoints) snapshot(c *connections) []EndpointSnapshot {
	list := make([]EndpointSnapshot, len(s.all))
	at := make(map[*endpoint]*EndpointSnapshot, len(s.all))
	now := time.Now()
	for i, e := range s.all {
		list[i] = EndpointSnapshot{
			Endpoint: e.Name, State: e.StateName(), Active: e.Active() && e.Enabled(), Unreachable: e.Unreachable() || e.unknown(),
			Weight: e.Weight(), ConfiguredWeight: e.ConfiguredWeight(), Priority: e.Priority,
			Dialing: e.dialing, Requests: make(map[string]uint64), Ejections: e.stats.ejections.Load(),
			ChecksOK: e.stats.checksOK.Load(), ChecksFailed: e.stats.checksFailed.Load(),
			P50Seconds: e.stats.duration.Quantile(0.5), P99Seconds: e.stats.duration.Quantile(0.99), stats: e.stats,
		}
		list[i].EjectedSeconds = e.EjectedFor(now).Seconds()
		if e.Enabled() { // if none is enabled, all have turns, and the pool refuses
			list[i].Share = s.Share(e.Endpoint, 1)
		}
		if e.dialError != nil {
			list[i].LastDialError = e.dialError.Error()
		}
		if err := e.CheckError(); err != nil {
			list[i].LastCheckError = err.Error()
		}
		for o := range exchange.Outcomes {
			if n := e.stats.outcomes[o].Load(); n > 0 {
				list[i].Requests[o.String()] = n
			}
		}
		for k := range e.stats.failed {
			list[i].DialErrors += e.stats.failed[k].Load()
		}
		at[e] = &list[i]
	}
	for m := range c.members {
		if e := at[m.ep]; e != nil { // otherwise a reload removed its endpoint
			e.Connections++
			e.InFlight += m.inUse
		}
	}
	return list
}

var (
	descEndpointRequests    = newDesc("endpoint_requests_total", "Attempts at an endpoint of an SSP, by how they ended. Retries and hedges count too.", "endpoint", "outcome")
	descEndpointConnections = newDesc("endpoint_connections", "Open connections to an endpoint.", "endpoint")
	descEndpointState       = newDesc("endpoint_state", "1 for the state that an endpoint is in, the first that applies of: disabled and draining (by hand), ejected, unhealthy (health_check), enabled.", "endpoint", "state")
	descEndpointEjections   = newDesc("endpoint_ejections_total", "How often an endpoint was ejected because it failed, or would have been (ejection.dry_run).", "endpoint")
	descEndpointChecks      = newDesc("endpoint_checks_total", "Health checks of an endpoint, by their result: ok or failed.", "endpoint", "result")
	descEndpointDuration    = newDesc("endpoint_request_duration_seconds", "Time of an attempt at an endpoint, from when it had its connection to the end of the response, in seconds.", "endpoint")
	descSSPState            = newDesc("ssp_state", "1 for the state that an operator has set for an SSP: enabled, draining or disabled.", "state")
)

func (e *EndpointSnapshot) collect(to metrics.Sink, o *Options) {
	to = to.With(e.Endpoint)
	for o := range exchange.Outcomes {
		if o.Row().Endpoint == exchange.Counted {
			to.Counter(descEndpointRequests, e.stats.outcomes[o].Load(), o.String())
		}
	}
	to.Gauge(descEndpointConnections, float64(e.Connections))
	checked, ejects := o.HealthCheck.Path != "", o.Ejection.Enabled
	for _, s := range balancer.States {
		if (s != balancer.Unhealthy || checked) && (s != balancer.Ejected || ejects) || e.State == s {
			to.Bool(descEndpointState, e.State == s, s)
		}
	}
	to.CounterIf(ejects, descEndpointEjections, e.Ejections)
	to.CounterIf(checked, descEndpointChecks, e.ChecksOK, "ok")
	to.CounterIf(checked, descEndpointChecks, e.ChecksFailed, "failed")
	to.Histogram(descEndpointDuration, e.stats.duration)
	for k, kind := range dialErrorNames {
		possible := true
		switch dialError(k) {
		case dialDNS:
			possible = isName(e.Endpoint)
		case dialTLS, dialALPN:
			possible = o.encrypted()
		}
		to.CounterIf(possible, descDialErrors, e.stats.failed[k].Load(), kind)
	}
}
