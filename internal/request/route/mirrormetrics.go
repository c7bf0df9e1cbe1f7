package route

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/wire/exchange"
)

var (
	descs        metrics.Descs
	descMirrored = descs.New("adbuffer_mirrored_total",
		"Copies of a route's requests for its mirror SSP, by how they ended; dropped: a limit prevented the copy, or the SSP did not respond to the last 5 copies.", "route", "ssp", "outcome")
)

// NewMirrorCollector returns a collector of the counts of the mirrors in the table that table
// returns at each scrape.
func NewMirrorCollector(table func() *Table) prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		for _, r := range table().Routes {
			m := r.Mirror
			if m == nil {
				continue
			}
			to := to.With(r.Name, m.SSP.Name())
			for o := range exchange.Outcomes {
				if o.Row().Mirror == exchange.Counted {
					to.Counter(descMirrored, m.Stats.outcomes[o].Load(), o.String())
				}
			}
			to.Counter(descMirrored, m.Stats.dropped.Load(), "dropped")
		}
	})
}
