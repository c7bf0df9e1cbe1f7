package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/upstream"
)

var (
	descRequests     = prometheus.NewDesc("adbuffer_requests_total", "Requests of clients, by the route they matched and how they ended.", []string{"route", "outcome"}, nil)
	descDuration     = prometheus.NewDesc("adbuffer_request_duration_seconds", "Time from the arrival of the whole request until its response was ready, in seconds.", []string{"route"}, nil)
	descNoAd         = prometheus.NewDesc("adbuffer_no_ad_total", "Responses without an ad, by origin: the SSP's no-bid (ssp), or an error, also one that on_error replaced (proxy).", []string{"route", "origin"}, nil)
	descInFlight     = prometheus.NewDesc("adbuffer_in_flight_requests", "Requests and fan-out legs in flight.", nil, nil)
	descInFlightMax  = prometheus.NewDesc("adbuffer_in_flight_requests_limit", "Requests and fan-out legs that may be in flight (server.max_in_flight).", nil, nil)
	descUploads      = prometheus.NewDesc("adbuffer_uploads", "Requests whose body is still arriving.", nil, nil)
	descUploadsMax   = prometheus.NewDesc("adbuffer_uploads_limit", "Requests whose body may still be arriving (server.max_uploads).", nil, nil)
	descDropped      = prometheus.NewDesc("adbuffer_uploads_dropped_total", "Requests that got 408 because server.max_uploads was reached and their body had been arriving for the longest time.", nil, nil)
	descClients      = prometheus.NewDesc("adbuffer_client_connections", "Open connections of clients.", nil, nil)
	descClientsMax   = prometheus.NewDesc("adbuffer_client_connections_limit", "Connections of clients that may be open (server.max_connections).", nil, nil)
	descBuffered     = prometheus.NewDesc("adbuffer_buffered_bytes", "Bytes of request and response bodies held.", nil, nil)
	descBufferedMax  = prometheus.NewDesc("adbuffer_buffered_bytes_limit", "Bytes of bodies that may be held (server.max_buffered_bytes).", nil, nil)
	descSent         = prometheus.NewDesc("adbuffer_client_sent_bytes_total", "Bytes written to the sockets of clients' connections, TLS included.", nil, nil)
	descReceived     = prometheus.NewDesc("adbuffer_client_received_bytes_total", "Bytes read from the sockets of clients' connections, TLS included.", nil, nil)
	descPanics       = prometheus.NewDesc("adbuffer_panics_total", "Requests that panicked and got 500, and legs of requests that panicked and ended as internal.", nil, nil)
	descHandshakes   = prometheus.NewDesc("adbuffer_client_tls_handshakes_total", "TLS handshakes with clients that succeeded, by whether they resumed a session, which takes far less CPU.", []string{"resumed"}, nil)
	descShaking      = prometheus.NewDesc("adbuffer_client_tls_handshakes_in_progress", "Clients whose TLS handshake has begun and not ended. Many: they wait for CPU, or do not respond.", nil, nil)
	descNoHandshakes = prometheus.NewDesc("adbuffer_client_tls_handshake_errors_total", "TLS handshakes with clients that failed: not done within server.read_timeout (timeout), closed by the client (closed), refused by the client (refused), or not acceptable to adbuffer (invalid).", []string{"reason"}, nil)
	descHTTP2Errors  = prometheus.NewDesc("adbuffer_client_http2_errors_total", "Streams and connections that were reset or closed because the client violated HTTP/2.", nil, nil)
	requestsOutcomes = func() (all []upstream.Outcome) {
		for o := upstream.Fill; o < upstream.Outcomes; o++ {
			all = append(all, o)
		}
		return all
	}()
)

// Describe implements prometheus.Collector.
func (p *Proxy) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descRequests, descDuration, descNoAd, descInFlight, descInFlightMax, descUploads, descUploadsMax, descDropped, descClients, descClientsMax, descBuffered, descBufferedMax, descPanics,
		descSent, descReceived, descHandshakes, descNoHandshakes, descShaking, descHTTP2Errors,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Proxy) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	g := p.current()
	for _, rs := range g.routes {
		for _, o := range requestsOutcomes {
			counter(descRequests, rs.outcomes[o].Load(), rs.name, o.String())
		}
		ch <- rs.duration.Metric(descDuration, rs.name)
		for o, name := range originNames {
			counter(descNoAd, rs.noAds[o].Load(), rs.name, name)
		}
	}
	gauge(descInFlight, float64(p.inFlight.Now()))
	gauge(descInFlightMax, float64(p.inFlight.Limit()))
	uploads, uploadsMax, dropped := p.uploads.now()
	gauge(descUploads, float64(uploads))
	gauge(descUploadsMax, float64(uploadsMax))
	counter(descDropped, dropped)
	gauge(descClients, float64(min(p.open.Load(), int64(g.opts.MaxConnections))))
	gauge(descClientsMax, float64(g.opts.MaxConnections))
	gauge(descBuffered, float64(p.budget.Used()))
	gauge(descBufferedMax, float64(p.budget.Limit()))
	counter(descPanics, p.panics.Load())
	counter(descSent, p.traffic.Sent())
	counter(descReceived, p.traffic.Received())
	counter(descHandshakes, p.handshakes.full.Load(), "false")
	counter(descHandshakes, p.handshakes.resumed.Load(), "true")
	for f, name := range handshakeFaultNames {
		counter(descNoHandshakes, p.handshakes.failed[f].Load(), name)
	}
	gauge(descShaking, float64(p.handshakes.now.Load()))
	counter(descHTTP2Errors, p.http2Errors.Load())
}
