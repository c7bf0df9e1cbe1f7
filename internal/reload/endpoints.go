package reload

import (
	"go.uber.org/zap"

	"adbuffer/internal/balancer"
)

// endpointEvents returns a function that logs the events of an SSP's endpoints.
func (v *Versions) endpointEvents(ssp string) func(balancer.Event) {
	return func(e balancer.Event) {
		log := v.opts.Peers.With(zap.String("ssp", ssp), zap.String("endpoint", e.Endpoint))
		switch {
		case e.Check == balancer.ChecksFail:
			log.Warn("an endpoint fails its health checks and gets no requests; see health_check", zap.Error(e.Err))
		case e.Check == balancer.ChecksFailIn:
			log.Warn("an endpoint fails its health checks, but gets requests, since no other endpoint may replace it; see ejection.max_ejected", zap.Error(e.Err))
		case e.Check == balancer.ChecksPass:
			log.Info("an endpoint passes its health checks again and gets requests")
		case !e.Ejected:
			log.Info("an endpoint works again and gets requests")
		default:
			message := "an endpoint fails and gets no requests for a while; see ejection"
			if e.DryRun {
				message = "an endpoint fails and would get no requests for a while, but ejection.dry_run is true"
			}
			log.Warn(message, zap.Duration("for", e.Lasts), zap.Int("ejections_in_a_row", e.InARow),
				zap.Uint64("requests", e.Requests), zap.Uint64("failures", e.Failures), zap.Int("failures_in_a_row", e.FailuresInARow))
		}
	}
}
