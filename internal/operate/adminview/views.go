// Package adminview makes the views of a running service that the admin listener shows: pools,
// their history and advice, and captures of requests.
package adminview

import (
	"context"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/request/proxy"
	"adbuffer/internal/setup/reload"
)

// Views makes the views of the admin listener. Create it with New.
type Views struct {
	versions *reload.Versions
	history  *histories
	events   serviceEvents
	reuse    reuse
}

// New returns views of the config versions. log is for events that SSPs cause.
func New(versions *reload.Versions, log *zap.Logger) *Views {
	return &Views{versions: versions, history: newHistories(log)}
}

// Watch records the history of all SSPs and of the service until ctx ends. It logs when an SSP's requests begin to fail,
// when limits are reached, when requests match no route, and when clients do not reuse connections. linesLost returns Facts.LinesLost.
func (v *Views) Watch(ctx context.Context, p *proxy.Proxy, linesLost func() uint64) {
	tick := time.NewTicker(historyStep)
	defer tick.Stop()
	var reached limitLog
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			routes, limits := p.Routes(), p.Limits()
			v.history.look(now, v.versions.Current().Parts, routes)
			reached.look(v.history.log, now, limits)
			single, client := p.SingleRequests()
			v.reuse.look(v.history.log, now, single, client, routes)
			v.events.look(now, limits, linesLost(), routes)
			v.events.logUnrouted(v.history.log, v.factsOf(Facts{Unrouted: p.Unrouted(UnroutedPaths)}, limits, proxy.Snapshot{}, v.routeRows(routes), now))
		}
	}
}

// History returns the response to GET /history: the SSP named only, or all SSPs if only is "".
func (v *Views) History(only string) any { return v.history.view(only) }
