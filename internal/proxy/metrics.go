package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/handshake"
	"adbuffer/internal/metrics"
	"adbuffer/internal/upstream"
)

var (
	descRequests    = metrics.NewDesc("adbuffer_requests_total", "Requests of clients, by the route they matched and how they ended.", "route", "outcome")
	descDuration    = metrics.NewDesc("adbuffer_request_duration_seconds", "Time from the arrival of the whole request until its response was ready, in seconds.", "route")
	descNoAd        = metrics.NewDesc("adbuffer_no_ad_total", "Responses without an ad, by origin: the SSP's no-bid (ssp), or an error, also one that on_error replaced (proxy).", "route", "origin")
	descInFlight    = metrics.NewDesc("adbuffer_in_flight_requests", "Requests and fan-out legs in flight.")
	descInFlightMax = metrics.NewDesc("adbuffer_in_flight_requests_limit", "Requests and fan-out legs that may be in flight (server.max_in_flight).")
	descUploads     = metrics.NewDesc("adbuffer_uploads", "Requests whose body is still arriving.")
	descUploadsMax  = metrics.NewDesc("adbuffer_uploads_limit", "Requests whose body may still be arriving (server.max_uploads).")
	descDropped     = metrics.NewDesc("adbuffer_uploads_dropped_total", "Requests that got 408 because server.max_uploads was reached and their body had been arriving for the longest time.")
	descClients     = metrics.NewDesc("adbuffer_client_connections", "Open connections of clients.")
	descClientsMax  = metrics.NewDesc("adbuffer_client_connections_limit", "Connections of clients that may be open (server.max_connections).")
	descBuffered    = metrics.NewDesc("adbuffer_buffered_bytes", "Bytes of request and response bodies held.")
	descBufferedMax = metrics.NewDesc("adbuffer_buffered_bytes_limit", "Bytes of bodies that may be held (server.max_buffered_bytes).")
	descSent        = metrics.NewDesc("adbuffer_client_sent_bytes_total", "Bytes written to the sockets of clients' connections, TLS included.")
	descReceived    = metrics.NewDesc("adbuffer_client_received_bytes_total", "Bytes read from the sockets of clients' connections, TLS included.")
	descPanics      = metrics.NewDesc("adbuffer_panics_total", "Requests that panicked and got 500, and legs of requests that panicked and ended as internal.")
	descHandshakes  = metrics.NewDesc("adbuffer_client_tls_handshakes_total", "TLS handshakes with clients that succeeded, by whether they resumed a session, which takes far less CPU.", "resumed")
	descShaking     = metrics.NewDesc("adbuffer_client_tls_handshakes_in_progress", "Clients whose TLS handshake has begun and not ended. Many: they wait for CPU, or do not respond.")
	descsOfTLS      = handshake.NewDescs("adbuffer_client_tls", "clients")
	descHTTP2Errors = metrics.NewDesc("adbuffer_client_http2_errors_total", "Streams and connections that were reset or closed because the client violated HTTP/2.")
)

// Describe implements prometheus.Collector.
func (p *Proxy) Describe(ch chan<- *prometheus.Desc) {
	metrics.Describe(ch,
		descRequests, descDuration, descNoAd, descInFlight, descInFlightMax, descUploads, descUploadsMax, descDropped, descClients, descClientsMax, descBuffered, descBufferedMax, descPanics,
		descSent, descReceived, descHandshakes, descShaking, descHTTP2Errors,
	)
	descsOfTLS.Describe(ch)
}

// Collect implements prometheus.Collector.
func (p *Proxy) Collect(ch chan<- prometheus.Metric) { metrics.Collect(p, ch) }

// Series implements metrics.Source.
func (p *Proxy) Series(to metrics.Sink) {
	g := p.current()
	for _, rs := range g.routes {
		for o := range upstream.Outcomes {
			to.Counter(descRequests, rs.outcomes[o].Load(), rs.name, o.String())
		}
		to.Histogram(descDuration, rs.duration, rs.name)
		for o, name := range originNames {
			to.Counter(descNoAd, rs.noAds[o].Load(), rs.name, name)
		}
	}
	to.Gauge(descInFlight, float64(p.inFlight.Now()))
	to.Gauge(descInFlightMax, float64(p.inFlight.Limit()))
	uploads, uploadsMax, dropped := p.uploads.now()
	to.Gauge(descUploads, float64(uploads))
	to.Gauge(descUploadsMax, float64(uploadsMax))
	to.Counter(descDropped, dropped)
	to.Gauge(descClients, float64(min(p.open.Load(), int64(g.opts.MaxConnections))))
	to.Gauge(descClientsMax, float64(g.opts.MaxConnections))
	to.Gauge(descBuffered, float64(p.budget.Used()))
	to.Gauge(descBufferedMax, float64(p.budget.Limit()))
	to.Counter(descPanics, p.panics.Load())
	to.Counter(descSent, p.traffic.Sent())
	to.Counter(descReceived, p.traffic.Received())
	to.Counter(descHandshakes, p.handshakes.full.Load(), "false")
	to.Counter(descHandshakes, p.handshakes.resumed.Load(), "true")
	descsOfTLS.Series(to, p.handshakes.counts.Load())
	to.Gauge(descShaking, float64(p.handshakes.now.Load()))
	to.Counter(descHTTP2Errors, p.http2Errors.Load())
}
