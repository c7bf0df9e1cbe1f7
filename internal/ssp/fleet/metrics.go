package fleet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
)

var descs metrics.Descs

func desc(name, help string) *prometheus.Desc { return descs.New("adbuffer_"+name, help, "ssp") }

var (
	descConnected = desc("qps_fleet_connected", "1 while requests to an SSP take tokens leased from Redis, 0 while this replica continues alone at its last share. SSPs with qps.scope fleet only.")
	descShare     = desc("qps_share", "Requests a second that this replica may send to an SSP while Redis is away: its own rate, and its part of the rate that no replica uses. SSPs with qps.scope fleet only.")
	descFailures  = desc("qps_lease_errors_total", "Calls of Redis that returned no lease for an SSP. SSPs with qps.scope fleet only.")
	descReplicas  = desc("qps_replicas", "Replicas that share an SSP's limit, this one included, as last read from Redis; 0 before the first read. SSPs with qps.scope fleet only.")
)

// NewCollector returns a collector that calls current at each scrape, and writes the series of the Fleet that current
// returns, if it is not nil.
func NewCollector(current func() *Fleet) prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		if f := current(); f != nil {
			for _, b := range f.all() {
				b.collect(to.With(b.name))
			}
		}
	})
}

func (b *Bucket) collect(to metrics.Sink) {
	to.Bool(descConnected, b.Connected(b.Since(time.Now())))
	to.Gauge(descShare, b.Share())
	to.Counter(descFailures, b.failures.Load())
	to.Gauge(descReplicas, float64(b.replicas.Load()))
}
