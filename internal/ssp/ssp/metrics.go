package ssp

import (
	"time"

	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/ssp/shaper"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/tcf"

	"github.com/prometheus/client_golang/prometheus"
)

var descs metrics.Descs

func desc(name, help string, labels ...string) *prometheus.Desc {
	return descs.New("adbuffer_"+name, help, append([]string{"ssp"}, labels...)...)
}

var (
	descRequests         = desc("ssp_requests_total", "Finished requests to an SSP, by outcome.", "outcome")
	descDuration         = desc("ssp_request_duration_seconds", "Time of a request to an SSP, from its start to the complete response, in seconds. It includes the wait for a place and retries. Requests refused before they asked for a place are not counted.")
	descFirstByte        = desc("ssp_first_byte_seconds", "Time until the first byte of an SSP's response, including the wait for a place, in seconds.")
	descResponses        = desc("ssp_responses_total", "Responses of an SSP by their exact status. If an SSP sends more than 40 different statuses, the rest count as other.", "code")
	descNoBids           = desc("no_bid_reasons_total", "Responses without a bid from an SSP with no_bid_body openrtb, by their field nbr: OpenRTB 3.0's reasons 0 to 17, a vendor's reason from 500 on (vendor), another number (other), or no such field (none).", "nbr")
	descMergeLeftOut     = desc("merge_left_out_total", "What merge: openrtb left out with statuscode 102: bids and seats with a member that OpenRTB 2.6 does not allow (bid), and responses that are no BidResponse to the request (response).", "part")
	descDecisions        = desc("tcf_decisions_total", "Requests for which conditions with tcf (ssps[].when, routes[].ssps[].when) decided whether an SSP is asked. Its vendor may process the request if the decision is allowed, or not_applicable: the GDPR does not apply. Otherwise there is no consent string or it grants too little (no_consent), or it cannot be read (unreadable).", "decision")
	descResponseBytes    = desc("ssp_response_size_bytes", "Lengths of the bodies of an SSP's responses, in bytes.")
	descRetries          = desc("retries_total", "Requests sent to an SSP again, by why that was safe.", "kind")
	descRetriesRefused   = desc("retries_refused_total", "Retries and hedges that the retry budget refused: at most every fifth request to an SSP is sent again.", "kind")
	descShedRatio        = desc("breaker_shed_ratio", "Share of the requests to an SSP that its breaker sheds now, or would shed in a dry run, 0 to 1.")
	descQPSLimited       = desc("qps_limited_total", "Requests to an SSP over qps.limit: refused, or only counted in a dry run.")
	descShapeRequests    = desc("shape_requests_total", "Requests that qps.shape scored, by its decision: passed, explored (drawn at random from those below the threshold, and sent) or dropped. A dry run drops none of them.", "decision")
	descShapeFills       = desc("shape_fills_total", "Fills of first attempts of the requests that qps.shape passed or explored.", "decision")
	descShapeLost        = desc("shape_lost_fills_total", "Fills that the requests dropped by qps.shape would have got, estimated from the explored ones. In a dry run, the fills of requests below the threshold.")
	descShapeVariance    = desc("shape_lost_fills_variance_total", "Variance of shape_lost_fills_total. The standard error of the increase in any window is the square root of the increase of this.")
	descShapeLoss        = desc("shape_loss_ratio", "Share of an SSP's fills that qps.shape lost in the last hour: the estimate, and the bounds of its 95 % interval (low, high); no series before 100 fills. In a dry run, the share that it would have lost. Bound max_loss is the setting, if it is above 0; a dry run has no such series.", "bound")
	descShapeThreshold   = desc("shape_threshold_ratio", "Estimated rate of fills from which requests pass qps.shape, 0 to 1; 0 while all pass.")
	descShapeExplore     = desc("shape_explore_ratio", "Probability with which a request below the threshold of qps.shape is sent.")
	descShapeSegments    = desc("shape_segments", "Prefixes of segments in the table of qps.shape, of at most 8192.")
	descShapePaused      = desc("shape_paused", "1 while no-bids teach qps.shape nothing, since the SSP gave no fill where 20 were expected.")
	descInFlight         = desc("ssp_in_flight_requests", "Requests to an SSP that are in flight, waiting ones included.")
	descConcurrencyLimit = desc("concurrency_limit", "Requests to an SSP that may be in flight: max_in_flight, 0 for no limit.")
	descRetryAfter       = desc("ssp_retry_after_responses_total", "Responses 429 and 503 of an SSP that carry Retry-After. Effect paused: requests to the SSP pause. Effect ignored: too few clients got one in the last 10 s, or too few of the last second's responses were 429, see retry_after_share.", "effect")
	descBuffered         = desc("ssp_buffered_bytes", "Bytes of an SSP's requests and responses that are held.")
	descBufferedLimit    = desc("ssp_buffered_bytes_limit", "Bytes of an SSP's requests and responses that may be held (ssps[].max_buffered_bytes). Further ones end as overloaded.")
	descBackoff          = desc("ssp_backoff_remaining_seconds", "How much longer requests to an SSP are refused because it asked for a pause, in seconds.")
)

// NewCollector returns a collector of what ssps returns at each scrape.
func NewCollector(ssps func() []*SSP) prometheus.Collector {
	return metrics.NewSource(descs, func(to metrics.Sink) {
		for _, s := range ssps() {
			s.collect(to)
		}
	})
}

func (s *SSP) collect(to metrics.Sink) {
	to = to.With(s.Name())
	now := s.since(time.Now())
	for o := range exchange.Outcomes {
		to.CounterIf(s.mayEnd(o), descRequests, s.stats.outcomes[o].Load(), o.String())
	}
	for k, kind := range retryKindNames {
		possible := s.mayRepeat(retryKind(k))
		to.CounterIf(possible, descRetries, s.stats.retries[k].Load(), kind)
		to.CounterIf(possible, descRetriesRefused, s.stats.overBudget[k].Load(), kind)
	}
	s.stats.codes.each(func(code string, n uint64) { to.Counter(descResponses, n, code) })
	if s.opts.NoBidBody == NoBidOpenRTB {
		for i, nbr := range noBidReasonNames {
			to.Counter(descNoBids, s.stats.noBids[i].Load(), nbr)
		}
	}
	merges := s.stats.merges.Load()
	to.CounterIf(merges, descMergeLeftOut, s.stats.leftOutBids.Load(), "bid")
	to.CounterIf(merges, descMergeLeftOut, s.stats.leftOutResponses.Load(), "response")
	for d := range tcf.Decisions {
		to.CounterIf(s.stats.decides.Load(), descDecisions, s.stats.decisions[d].Load(), d.String())
	}
	to.Histogram(descResponseBytes, s.stats.responseBytes)
	to.Histogram(descDuration, s.stats.duration)
	to.Histogram(descFirstByte, s.stats.firstByte)
	to.Gauge(descShedRatio, s.breaker.shedRatio(now))
	to.CounterIf(s.opts.QPS.Limit > 0, descQPSLimited, s.qps.limited.Load())
	if report, enforced, ok := s.ShapeReport(); ok {
		collectShape(to, &report)
		if maxLoss := s.opts.Shape.MaxLoss; maxLoss > 0 && enforced {
			to.Gauge(descShapeLoss, maxLoss, "max_loss")
		}
	}
	to.Gauge(descInFlight, float64(s.inFlight.Now()))
	to.Gauge(descConcurrencyLimit, float64(s.inFlight.Limit()))
	to.Counter(descRetryAfter, s.retryAfters.paused.Load(), "paused")
	to.Counter(descRetryAfter, s.retryAfters.ignored.Load(), "ignored")
	to.Gauge(descBuffered, float64(s.buffered.Used()))
	to.Gauge(descBufferedLimit, float64(s.buffered.Limit()))
	to.Gauge(descBackoff, s.backoff.left(now).Seconds())
}

func collectShape(to metrics.Sink, r *shaper.Report) {
	for k := shaper.Passed; k <= shaper.Dropped; k++ {
		to.Counter(descShapeRequests, r.Requests[k], k.String())
	}
	for k := shaper.Passed; k <= shaper.Explored; k++ {
		to.Counter(descShapeFills, r.Fills[k], k.String())
	}
	to.FloatCounter(descShapeLost, r.LostFills)
	to.FloatCounter(descShapeVariance, r.LostVariance)
	if r.State != shaper.Cold {
		to.Gauge(descShapeLoss, r.Hour.Low, "low")
		to.Gauge(descShapeLoss, r.Hour.Estimate, "estimate")
		to.Gauge(descShapeLoss, r.Hour.High, "high")
	}
	to.Gauge(descShapeThreshold, r.Threshold)
	to.Gauge(descShapeExplore, r.Explore)
	to.Gauge(descShapeSegments, float64(r.Segments))
	to.Bool(descShapePaused, r.Paused)
}

// mayEnd reports whether a request to the SSP can end so with its settings.
func (s *SSP) mayEnd(o exchange.Outcome) bool {
	switch o {
	case exchange.Unreadable:
		return s.opts.NoBidBody == NoBidVAST || s.opts.NoBidBody == NoBidOpenRTB
	case exchange.BreakerOpen:
		return s.opts.Breaker.Enabled && !s.opts.Breaker.DryRun
	case exchange.QPSLimit:
		return s.opts.QPS.Limit > 0 && !s.opts.QPS.DryRun
	case exchange.Shaped:
		return s.shape != nil && s.shape.enforce
	case exchange.SSPBackoff:
		return s.opts.RetryAfterMax > 0
	case exchange.TLSFailed:
		return s.opts.Scheme == "https"
	}
	return o.Row().Ends&exchange.AtSSP != 0
}

// mayRepeat reports whether a request can be sent again for this reason with the SSP's settings.
func (s *SSP) mayRepeat(k retryKind) bool {
	switch k {
	case retryHedge:
		return s.opts.Hedge.Enabled
	case retryStale:
		return s.opts.RetryStale != StaleNever
	}
	return true
}
