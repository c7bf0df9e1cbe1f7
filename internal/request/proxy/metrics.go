package proxy

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/client/http1"
	"adbuffer/internal/machine/metrics"
	"adbuffer/internal/machine/overload"
	"adbuffer/internal/wire/exchange"
	"adbuffer/internal/wire/openrtb"
)

var (
	descs           metrics.Descs
	descRequests    = descs.New("adbuffer_requests_total", "Requests of clients, by the route they matched and how they ended; preflight: a browser's OPTIONS request, to which routes[].cors responded.", "route", "outcome")
	descDuration    = descs.New("adbuffer_request_duration_seconds", "Time from the arrival of the whole request until its response was ready, in seconds.", "route")
	descNoAd        = descs.New("adbuffer_no_ad_total", "Responses without an ad, by origin: after an SSP's no-bid (ssp), or the route's no_ad after something else, such as an error that on_error: no_ad replaced (proxy). With on_error: status, errors are not counted here.", "route", "origin")
	descMasked      = descs.New("adbuffer_masked_total", "Error responses of SSPs that on_error replaced by the route's no_ad (on_error_status), unreadable ones included.", "route")
	descInFlight    = descs.New("adbuffer_in_flight_requests", "Requests and fan-out legs in flight.")
	descInFlightMax = descs.New("adbuffer_in_flight_requests_limit", "Requests and fan-out legs that may be in flight (server.max_in_flight).")
	descUploads     = descs.Dropped("body")
	descBuffered    = descs.New("adbuffer_buffered_bytes", "Bytes of request and response bodies held, and of frames that wait for clients over HTTP/2.")
	descBufferedMax = descs.New("adbuffer_buffered_bytes_limit", "Bytes of bodies that may be held (server.max_buffered_bytes, or less if it is more than a quarter of the memory).")
	descUnread      = descs.Dropped("response")
	descNoConn      = descs.LimitRefused("max_connections")
	descNoFlight    = descs.LimitRefused("max_in_flight")
	descNoBytes     = descs.LimitRefused("max_buffered_bytes")
	descUnreadable  = descs.New("adbuffer_openrtb_unreadable_total", "Bodies that matched no condition on OpenRTB, or that remove and set could not change, because they could not be read unambiguously, or (wrong_type) because set found no object or array where it needs one.", "reason")
	descShed        = descs.New("adbuffer_overload_refused_total", "Requests that got 503 or the response without an ad because adbuffer had too little CPU (server.overload), by the route's priority.", "priority")
	descWouldShed   = descs.New("adbuffer_overload_dry_run_total", "Requests that would have been refused because adbuffer had too little CPU, without server.overload.dry_run, by the route's priority.", "priority")
	descLag         = descs.New("adbuffer_overload_lag_seconds", "How long a goroutine that is ready waits for its turn: the least of the last 100 ms, in seconds. Above server.overload.target adbuffer is overloaded.")
	descSampled     = descs.New("adbuffer_sample_requests", "Requests that the sample of the traffic holds (admin.sample).")
	descSampleBytes = descs.New("adbuffer_sample_bytes", "Bytes that the sample of the traffic holds, which adbuffer_buffered_bytes includes.")
	descPanics      = descs.New("adbuffer_panics_total", "Requests that panicked and got 500, and legs of requests that panicked and ended as internal.")
)

// Metrics returns a collector of p's metrics.
func (p *Proxy) Metrics() prometheus.Collector {
	return metrics.NewSource(slices.Concat(descs, http1.Descs), p.collect)
}

func (p *Proxy) collect(to metrics.Sink) {
	v := p.current()
	for i, rs := range v.routes {
		ends := exchange.Routed
		if rs.name == noRoute {
			ends = exchange.Unrouted
		}
		for o := range exchange.Outcomes {
			to.CounterIf(o.Row().Ends&ends != 0, descRequests, rs.outcomes[o].Load(), rs.name, o.String())
		}
		hasCORS := i < len(v.table.Routes) && len(v.table.Routes[i].CORS.Origins) > 0
		to.CounterIf(hasCORS, descRequests, rs.preflights.Load(), rs.name, preflightOutcome)
		to.Histogram(descDuration, rs.duration, rs.name)
		for o, name := range originNames {
			to.Counter(descNoAd, rs.noAds[o].Load(), rs.name, name)
		}
		to.Counter(descMasked, rs.masked.Load(), rs.name)
	}
	to.Gauge(descInFlight, float64(p.inFlight.Now()))
	to.Gauge(descInFlightMax, float64(p.inFlight.Limit()))
	_, _, dropped := p.uploads.counts()
	to.Counter(descUploads, dropped)
	to.Gauge(descBuffered, float64(p.budget.Used()))
	to.Gauge(descBufferedMax, float64(p.budget.Limit()))
	_, _, dropped = p.unread.counts()
	to.Counter(descUnread, dropped)
	to.Counter(descNoConn, p.Connections().Refused)
	to.Counter(descNoFlight, p.inFlight.Refused())
	to.Counter(descNoBytes, p.budget.Refused())
	for why := openrtb.Syntax; why < openrtb.Reasons; why++ {
		to.Counter(descUnreadable, p.unreadable[why].Load(), why.String())
	}
	to.Counter(descPanics, p.panics.Load())
	shed := v.opts.Overload
	for priority := range overload.Priorities {
		refused, dry := shed.Count(priority)
		to.Counter(descShed, refused, priority.String())
		to.Counter(descWouldShed, dry, priority.String())
	}
	to.Gauge(descLag, shed.Lag().Seconds())
	requests, bytes := v.sample.Held()
	to.Gauge(descSampled, float64(requests))
	to.Gauge(descSampleBytes, float64(bytes))
	p.Collect(to)
}
