package reload

import (
	"fmt"

	"go.uber.org/zap"

	"adbuffer/internal/ssp/balancer"
)

// endpointEvents returns a function that logs the events of an SSP's endpoints.
func (v *Versions) endpointEvents(ssp string) func(balancer.Event) {
	return func(e balancer.Event) {
		log := v.opts.Peers.With(zap.String("ssp", ssp), zap.String("endpoint", e.Endpoint))
		switch {
		case e.Check == balancer.ChecksFail:
			log.Warn("an endpoint fails its health checks and gets no requests; see health_check", zap.String("why", e.Err.Error()))
		case e.Check == balancer.ChecksFailIn:
			log.Warn("an endpoint fails its health checks, but gets requests, since no other endpoint may replace it; see ejection.max_ejected", zap.String("why", e.Err.Error()))
		case e.Check == balancer.ChecksPass:
			log.Info("an endpoint passes its health checks again and gets requests")
		case !e.Ejected:
			log.Info("an endpoint works again and gets requests")
		default:
			message := "an endpoint fails and gets no requests for a while; see ejection"
			if e.DryRun {
				message = "an endpoint fails and would get no requests for a while, but ejection.dry_run is true"
			}
			why := fmt.Sprintf("%d of %d requests failed, %d in a row", e.Failures, e.Requests, e.FailuresInARow)
			log.Warn(message, zap.String("why", why), zap.Duration("for", e.Lasts), zap.Int("ejections_in_a_row", e.InARow))
		}
	}
}
