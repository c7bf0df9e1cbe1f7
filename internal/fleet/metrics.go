package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("adbuffer_"+name, help, []string{"ssp"}, nil)
}

var (
	descConnected = desc("qps_fleet_connected", "1 while requests to an SSP take tokens leased from Redis, 0 while this replica continues alone at its last share. SSPs with qps.scope fleet only.")
	descShare     = desc("qps_share", "Requests a second that this replica may send to an SSP while Redis is away: its own rate, and its part of the rate that no replica uses. SSPs with qps.scope fleet only.")
	descReplicas  = desc("qps_replicas", "Replicas that share an SSP's limit, this one included, as last read from Redis; 0 before the first read. SSPs with qps.scope fleet only.")
	descLeased    = desc("qps_leased_total", "Requests to an SSP that Redis has allowed this replica to send, including those it did not need. SSPs with qps.scope fleet only.")
	descFailures  = desc("qps_lease_errors_total", "Calls of Redis that returned no lease for an SSP. SSPs with qps.scope fleet only.")
)

// Collector exports the metrics of fleets.
type Collector struct {
	fleet func() *Fleet
}

// NewCollector returns a collector of the fleet that the function returns at each scrape, nil for
// none.
func NewCollector(fleet func() *Fleet) Collector { return Collector{fleet} }

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descConnected, descShare, descReplicas, descLeased, descFailures} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	f := c.fleet()
	if f == nil {
		return
	}
	for _, b := range f.all() {
		connected := 0.0
		if b.Connected(b.Since(time.Now())) {
			connected = 1
		}
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, b.name)
		}
		counter := func(d *prometheus.Desc, v uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), b.name)
		}
		gauge(descConnected, connected)
		gauge(descShare, b.Share())
		gauge(descReplicas, float64(b.replicas.Load()))
		counter(descLeased, b.leased.Load())
		counter(descFailures, b.failures.Load())
	}
}
