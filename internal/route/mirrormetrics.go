package route

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/upstream"
)

var descMirrored = prometheus.NewDesc("adbuffer_mirrored_total",
	"Copies of a route's requests for its mirror SSP, by how they ended; dropped: a limit prevented the copy, or the SSP did not respond to the last 5 copies.", []string{"route", "ssp", "outcome"}, nil)

// mirrorOutcomes are the possible outcomes of a mirrored request, in addition to dropped.
var mirrorOutcomes = []upstream.Outcome{
	upstream.Fill, upstream.NoBid, upstream.Redirect, upstream.ClientError, upstream.ServerError, upstream.BreakerOpen, upstream.SSPBackoff,
	upstream.SSPDisabled, upstream.Draining, upstream.ConnectFailed, upstream.TLSFailed, upstream.ConnLost, upstream.BadResponse,
	upstream.ResponseTooLarge, upstream.Deadline, upstream.Internal,
}

// mirrorCollector exports the counts of the routes' mirrors.
type mirrorCollector struct{ table func() *Table }

// NewMirrorCollector returns a collector of the table that table returns at each scrape.
func NewMirrorCollector(table func() *Table) prometheus.Collector { return mirrorCollector{table} }

// Describe implements prometheus.Collector.
func (mirrorCollector) Describe(ch chan<- *prometheus.Desc) { ch <- descMirrored }

// Collect implements prometheus.Collector.
func (c mirrorCollector) Collect(ch chan<- prometheus.Metric) {
	for _, r := range c.table().Routes {
		m := r.Mirror
		if m == nil {
			continue
		}
		count := func(n uint64, outcome string) {
			ch <- prometheus.MustNewConstMetric(descMirrored, prometheus.CounterValue, float64(n), r.Name, m.SSP.Name(), outcome)
		}
		for _, o := range mirrorOutcomes {
			count(m.Stats.outcomes[o].Load(), o.String())
		}
		count(m.Stats.dropped.Load(), "dropped")
	}
}
