package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"adbuffer/internal/handshake"
	"adbuffer/internal/metrics"
	"adbuffer/internal/upstream"
)

var (
	descs           metrics.Descs
	descRequests    = descs.New("adbuffer_requests_total", "Requests of clients, by the route they matched and how they ended.", "route", "outcome")
	descDuration    = descs.New("adbuffer_request_duration_seconds", "Time from the arrival of the whole request until its response was ready, in seconds.", "route")
	descNoAd        = descs.New("adbuffer_no_ad_total", "Responses without an ad, by origin: the SSP's no-bid (ssp), or an error, also one that on_error replaced (proxy).", "route", "origin")
	descInFlight    = descs.New("adbuffer_in_flight_requests", "Requests and fan-out legs in flight.")
	descInFlightMax = descs.New("adbuffer_in_flight_requests_limit", "Requests and fan-out legs that may be in flight (server.max_in_flight).")
	descUploads     = descs.New("adbuffer_uploads", "Requests whose body is still arriving.")
	descUploadsMax  = descs.New("adbuffer_uploads_limit", "Requests whose body may still be arriving (server.max_uploads).")
	descDropped     = descs.New("adbuffer_uploads_dropped_total", "Requests that got 408 because server.max_uploads was reached, or half of server.max_buffered_bytes was held by such requests, and their body had been arriving for the longest time.")
	descClients     = descs.New("adbuffer_client_connections", "Open connections of clients.")
	descClientsMax  = descs.New("adbuffer_client_connections_limit", "Connections of clients that may be open (server.max_connections, or fewer if the process may not open as many files).")
	descIdleDropped = descs.New("adbuffer_client_connections_dropped_total", "Connections of clients that had been idle for the longest time, and were closed because server.max_connections was reached, or no further file could be opened.")
	descUnfinished  = descs.New("adbuffer_client_connections_unfinished_dropped_total", "Connections of clients that were closed because server.max_connections was reached and they had been waiting for the longest time: for the rest of a PROXY header or TLS handshake (handshake), or of a message head (head).", "stage")
	descBuffered    = descs.New("adbuffer_buffered_bytes", "Bytes of request and response bodies held.")
	descBufferedMax = descs.New("adbuffer_buffered_bytes_limit", "Bytes of bodies that may be held (server.max_buffered_bytes, or less if it is more than a quarter of the memory).")
	descUnread      = descs.New("adbuffer_client_responses_dropped_total", "Responses that were cut because clients did not read them: unread responses held half of server.max_buffered_bytes or of an SSP's max_buffered_bytes, and these waited for the longest time.")
	descSent        = descs.New("adbuffer_client_sent_bytes_total", "Bytes written to the sockets of clients' connections, TLS included.")
	descReceived    = descs.New("adbuffer_client_received_bytes_total", "Bytes read from the sockets of clients' connections, TLS included.")
	descPanics      = descs.New("adbuffer_panics_total", "Requests that panicked and got 500, and legs of requests that panicked and ended as internal.")
	descHandshakes  = descs.New("adbuffer_client_tls_handshakes_total", "TLS handshakes with clients that succeeded, by whether they resumed a session, which takes far less CPU.", "resumed")
	descShaking     = descs.New("adbuffer_client_tls_handshakes_in_progress", "Clients whose TLS handshake has begun and not ended. Many: they wait for CPU, or do not respond.")
	descsOfTLS      = handshake.NewDescs(&descs, "adbuffer_client_tls", "clients")
	descHTTP2Errors = descs.New("adbuffer_client_http2_errors_total", "Streams and connections that were reset or closed because the client violated HTTP/2.")
)

// Metrics returns a collector of p's metrics.
func (p *Proxy) Metrics() prometheus.Collector { return metrics.NewSource(descs, p.collect) }

func (p *Proxy) collect(to metrics.Sink) {
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
	to.Gauge(descClients, float64(p.open.Load()))
	to.Gauge(descClientsMax, float64(g.opts.MaxConnections))
	to.Counter(descIdleDropped, p.idleDropped.Load())
	to.Counter(descUnfinished, p.clients.unfinished.handshakes.Load(), "handshake")
	to.Counter(descUnfinished, p.clients.unfinished.heads.Load(), "head")
	to.Gauge(descBuffered, float64(p.budget.Used()))
	to.Gauge(descBufferedMax, float64(p.budget.Limit()))
	to.Counter(descUnread, p.unread.countDropped())
	to.Counter(descPanics, p.panics.Load())
	to.Counter(descSent, p.traffic.Sent())
	to.Counter(descReceived, p.traffic.Received())
	to.Counter(descHandshakes, p.handshakes.full.Load(), "false")
	to.Counter(descHandshakes, p.handshakes.resumed.Load(), "true")
	descsOfTLS.Series(to, p.handshakes.counts.Load())
	to.Gauge(descShaking, float64(p.handshakes.now.Load()))
	to.Counter(descHTTP2Errors, p.http2Errors.Load())
}
