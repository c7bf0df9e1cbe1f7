package pool

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/upstream"
)

// Collector exports the metrics of pools.
type Collector struct {
	pools func() []*Pool
}

// NewCollector returns a collector of what pools returns at each scrape.
func NewCollector(pools func() []*Pool) *Collector { return &Collector{pools: pools} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("adbuffer_pool_"+name, help, append([]string{"ssp"}, labels...), nil)
}

var (
	descConnections      = desc("connections", "Connections of the pool, by what they speak and what they do.", "protocol", "state")
	descConnectionsLimit = desc("connections_limit", "Connections that the pool may have open or be dialing (pool.max_conns).")
	descPlacesInUse      = desc("places_in_use", "Places lent to requests, or still held by abandoned answers.")
	descPlacesLimit      = desc("places_limit", "Places that the pool can lend at once, with the connections that it may yet open.")
	descSaturation       = desc("saturation_ratio", "Places in use of places possible, 0 to 1.")
	descSaturationMax    = desc("saturation_max_ratio", "Highest saturation ratio of the last 60 seconds.")
	descAtArrival        = desc("saturation_at_arrival", "Saturation ratio as each arriving request found it.")
	descHold             = desc("hold_seconds", "How long a place was in use, in seconds.")
	descPending          = desc("pending_requests", "Requests that wait for a place to be given back; those that wait for a connection to open are not among them.")
	descPendingLimit     = desc("pending_requests_limit", "Requests that may wait (pool.max_pending), -1 for no limit.")
	descAcquire          = desc("acquire_seconds", "Time until a request had its place, or was refused one, in seconds.", "outcome")
	descOpened           = desc("connections_opened_total", "Connections opened, by the protocol they negotiated.", "protocol")
	descClosed           = desc("connections_closed_total", "Connections closed, by why.", "reason")
	descPerConnection    = desc("requests_per_connection", "Requests that a connection had carried when it was closed.")
	descIdleAge          = desc("idle_age_seconds", "How long a connection had been idle when it was lent again, in seconds.")
	descDial             = desc("dial_seconds", "Duration of a dial's phases, in seconds.", "phase")
	descDialsLimit       = desc("dials_limit", "Dials that may be under way at once (pool.max_dials).")
	descDialErrors       = desc("dial_errors_total", "Dials that failed, by how.", "kind")
	descStale            = desc("stale_connections_total", "Idle connections that turned out closed, or to hold bytes nobody asked for, when they were to be lent.")
	descAdvised          = desc("advised_connections", "Connections that let 3 % of the requests of the last minute wait for a place, by Little's law and Erlang C: what pool.max_conns should be, or pool.max_http2_conns where HTTP/2 is spoken. 0 without requests.")
	descAdvisedPlaces    = desc("advised_places", "Places that let 3 % of the requests of the last minute wait for one, to be compared with pool_places_limit, whatever is spoken. 0 without requests.")
	descHeadroom         = desc("headroom_ratio", "Share of the possible places that the load of the last minute leaves free, 1 without requests; negative where more is asked than there can be.")
	descLearnedIdle      = desc("learned_idle_seconds", "After how long the SSP closes idle connections, as far as its closes tell, in seconds; pool.idle_timeout belongs below. 0 while unknown.")
	descWarm             = desc("warm", "1 once min_idle connections were open, 0 before.")
)

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descConnections, descConnectionsLimit, descPlacesInUse, descPlacesLimit, descSaturation, descSaturationMax, descAtArrival,
		descHold, descPending, descPendingLimit, descAcquire, descOpened, descClosed, descPerConnection, descIdleAge, descDial,
		descDialsLimit, descDialErrors, descStale, descWarm,
		descAdvised, descAdvisedPlaces, descHeadroom, descLearnedIdle,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.pools() {
		p.collect(ch)
	}
}

func (p *Pool) collect(ch chan<- prometheus.Metric) {
	s := p.Snapshot()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.SSP}, labels...)...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{s.SSP}, labels...)...)
	}
	for pr := upstream.HTTP1; pr < upstream.Protocols; pr++ {
		gauge(descConnections, float64(s.Idle[pr]), pr.String(), "idle")
		gauge(descConnections, float64(s.Active[pr]), pr.String(), "active")
		gauge(descConnections, float64(s.Draining[pr]), pr.String(), "draining")
		counter(descOpened, p.stats.openedBy[pr].Load(), pr.String())
	}
	// What a dial will negotiate is not known before it is over.
	gauge(descConnections, float64(s.Dialing), upstream.Unknown.String(), "dialing")
	gauge(descConnectionsLimit, float64(s.ConnectionsLimit))
	gauge(descPlacesInUse, float64(s.PlacesInUse))
	gauge(descPlacesLimit, float64(s.PlacesLimit))
	gauge(descSaturation, s.Saturation)
	gauge(descSaturationMax, s.SaturationMax)
	gauge(descPending, float64(s.Pending))
	gauge(descPendingLimit, float64(s.PendingLimit))
	gauge(descDialsLimit, float64(s.DialsLimit))
	warm := 0.0
	if s.Warm {
		warm = 1
	}
	gauge(descWarm, warm)
	gauge(descAdvised, float64(s.Need.AdvisedConnections))
	gauge(descAdvisedPlaces, float64(s.Need.AdvisedPlaces))
	gauge(descHeadroom, s.Need.HeadroomRatio)
	gauge(descLearnedIdle, s.LearnedIdleSeconds)
	for r := upstream.NotClosed + 1; r < upstream.CloseReasons; r++ {
		counter(descClosed, p.stats.closedBy[r].Load(), r.String())
	}
	for k, name := range dialErrorNames {
		counter(descDialErrors, p.stats.failed[k].Load(), name)
	}
	counter(descStale, p.stats.stale.Load())
	for o, name := range acquireOutcomeNames {
		ch <- p.stats.acquire[o].Metric(descAcquire, s.SSP, name)
	}
	ch <- p.stats.atArrival.Metric(descAtArrival, s.SSP)
	ch <- p.stats.hold.Metric(descHold, s.SSP)
	ch <- p.stats.requestsPerConn.Metric(descPerConnection, s.SSP)
	ch <- p.stats.idleAge.Metric(descIdleAge, s.SSP)
	ch <- p.stats.dns.Metric(descDial, s.SSP, "dns")
	ch <- p.stats.tcp.Metric(descDial, s.SSP, "tcp")
	ch <- p.stats.tls.Metric(descDial, s.SSP, "tls")
}
