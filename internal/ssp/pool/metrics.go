package pool

import (
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/ssp/balancer"
	"adbuffer/internal/wire/exchange"
)

// NewCollector returns a collector of what pools returns at each scrape.
func NewCollector(pools func() []*Pool) prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		for _, p := range pools() {
			p.collect(to)
		}
	})
}

var descs metrics.Descs

func desc(name, help string, labels ...string) *prometheus.Desc {
	return newDesc("pool_"+name, help, labels...)
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return descs.New("adbuffer_"+name, help, append([]string{"ssp"}, labels...)...)
}

var (
	descConnections      = desc("connections", "Connections of the pool, by protocol and state.", "protocol", "state")
	descConnectionsLimit = desc("connections_limit", "Connections that the pool may have open or be dialing (pool.max_conns).")
	descPlacesInUse      = desc("places_in_use", "Places in use by requests, or by responses that were abandoned.")
	descPlacesLimit      = desc("places_limit", "Places that the pool can offer at once, including those on connections that it may still open.")
	descSaturation       = desc("saturation_ratio", "Places in use divided by places possible, 0 to 1.")
	descSaturationMax    = desc("saturation_max_ratio", "Highest saturation ratio of the last 60 seconds.")
	descHold             = desc("hold_seconds", "How long a place was in use, in seconds.")
	descPending          = desc("pending_requests", "Requests that wait for a place to be released, without those that wait for a connection to open.")
	descPendingLimit     = desc("pending_requests_limit", "Requests that may wait (pool.max_pending), -1 for no limit.")
	descAcquire          = desc("acquire_seconds", "Time until a request got its place or an error, in seconds.", "outcome")
	descOpened           = desc("connections_opened_total", "Connections opened, by the protocol they negotiated.", "protocol")
	descClosed           = desc("connections_closed_total", "Connections closed, by reason.", "reason")
	descPerConnection    = desc("requests_per_connection", "Requests that a connection had carried when it was closed.")
	descDial             = desc("dial_seconds", "Duration of a dial's phases, in seconds.", "phase")
	descDialErrors       = desc("dial_errors_total", "Dials that failed, by endpoint and kind of error. A failed look-up counts for the endpoint whose name was looked up.", "endpoint", "kind")
	descStale            = desc("stale_connections_total", "Idle connections that a request found closed, or with unsolicited bytes.")
	descAdvised          = desc("advised_connections", "Advised pool.max_conns (over HTTP/2 pool.max_http2_conns): with so many connections 3 % of the last minute's requests wait for a place, by Little's law and Erlang C. 0 without requests.")
	descAdvisedPlaces    = desc("advised_places", "Advised number of places: with so many, 3 % of the last minute's requests wait for one. Compare it with adbuffer_pool_places_limit, for any protocol. 0 without requests.")
	descLearnedIdle      = desc("learned_idle_seconds", "Idle time after which the SSP closes connections, as learned from its closes, in seconds; pool.idle_timeout belongs below it. 0 while unknown.")
	descAutoLimit        = desc("auto_limit", "Places that a pool which sizes itself allows itself now (pool.auto).")
	descFairEvicted      = newDesc("fairness_evicted_total", "Requests that left a full queue so that a request of another key may wait (server.fairness.key).")
)

func (p *Pool) collect(to metrics.Sink) {
	s := p.Snapshot()
	to = to.With(s.SSP)
	o := p.Options()
	for pr := exchange.HTTP1; pr < exchange.Protocols; pr++ {
		opened := p.stats.openedBy[pr].Load()
		if !o.speaks(pr) && opened == 0 {
			continue
		}
		to.Gauge(descConnections, float64(s.Idle[pr]), pr.String(), "idle")
		to.Gauge(descConnections, float64(s.Active[pr]), pr.String(), "active")
		to.Gauge(descConnections, float64(s.Draining[pr]), pr.String(), "draining")
		to.Counter(descOpened, opened, pr.String())
	}
	// The protocol of a dial is unknown until the dial ends.
	to.Gauge(descConnections, float64(s.Dialing), exchange.Unknown.String(), "dialing")
	to.Gauge(descConnectionsLimit, float64(s.ConnectionsLimit))
	to.Gauge(descPlacesInUse, float64(s.PlacesInUse))
	to.Gauge(descPlacesLimit, float64(s.PlacesLimit))
	to.Gauge(descSaturation, s.Saturation)
	to.Gauge(descSaturationMax, s.SaturationMax)
	to.Gauge(descPending, float64(s.Pending))
	to.Gauge(descPendingLimit, float64(s.PendingLimit))
	to.Gauge(descAdvised, float64(s.Need.AdvisedConnections))
	to.Gauge(descAdvisedPlaces, float64(s.Need.AdvisedPlaces))
	to.Gauge(descLearnedIdle, s.LearnedIdleSeconds)
	if s.Auto != nil {
		to.Gauge(descAutoLimit, float64(s.Auto.Limit))
	}
	for r := exchange.NotClosed + 1; r < exchange.CloseReasons; r++ {
		to.CounterIf(o.closesFor(r), descClosed, p.stats.closedBy[r].Load(), r.String())
	}
	named := false
	for _, e := range s.Endpoints {
		e.collect(to, &o)
		named = named || isName(e.Endpoint)
	}
	for state := balancer.Enabled; state <= balancer.Disabled; state++ {
		to.Bool(descSSPState, s.State == state.String(), state.String())
	}
	to.Counter(descStale, p.stats.stale.Load())
	to.CounterIf(o.Fair, descFairEvicted, p.stats.fairEvicted.Load())
	for o, name := range acquireOutcomeNames {
		to.Histogram(descAcquire, p.stats.acquire[o], name)
	}
	to.Histogram(descHold, p.stats.hold)
	to.Histogram(descPerConnection, p.stats.requestsPerConn)
	if named {
		to.Histogram(descDial, p.stats.dns, "dns")
	}
	to.Histogram(descDial, p.stats.tcp, "tcp")
	to.HistogramIf(o.encrypted(), descDial, p.stats.tls, "tls")
}

// speaks reports whether a connection may have this protocol.
func (o *Options) speaks(pr exchange.Protocol) bool {
	return o.Protocol == pr || o.Protocol == exchange.Unknown && pr != exchange.HTTP1Pipelined
}

// encrypted reports whether connections are TLS.
func (o *Options) encrypted() bool { return o.TLSTimeout > 0 }

// closesFor reports whether a connection may be closed for this reason.
func (o *Options) closesFor(r exchange.CloseReason) bool {
	switch r {
	case exchange.ClosedMaxRequests:
		return o.MaxRequests > 0
	case exchange.ClosedGoaway:
		return o.speaks(exchange.HTTP2)
	case exchange.ClosedDNS:
		return slices.ContainsFunc(o.Endpoints, func(e balancer.Options) bool { return isName(e.Name) })
	case exchange.ClosedUnsolicited, exchange.ClosedLeftover:
		return o.Protocol != exchange.HTTP2
	}
	return true
}

// isName reports whether the endpoint's host is looked up.
func isName(endpoint string) bool {
	_, err := netip.ParseAddrPort(endpoint)
	return err != nil
}
